"""The command line's tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from myqueue.cli.main import GROUPS, _parse, main
from myqueue.client.admin import PartitionDescription
from myqueue.errors import UnavailableError, UnknownTopicError


def test_help_names_every_group(capsys: pytest.CaptureFixture[str]):
    """``--help`` ends well and shows all there is."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(group.name in shown for group in GROUPS)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["cluster"], ["cluster", "nonsense"], ["cluster", "kill"],
                                   ["cluster", "up", "--brokers", "many"]])
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    """A command that is not there, a missing word or a malformed value is usage."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("group", [group.name for group in GROUPS])
def test_every_group_has_help(group: str, capsys: pytest.CaptureFixture[str]):
    """Each group's own ``--help`` works."""
    with pytest.raises(SystemExit) as ended:
        main([group, "--help"])
    assert ended.value.code == 0
    assert f"usage: myqueue {group}" in capsys.readouterr().out


def test_a_failure_is_one_sentence_and_1(tmp_path, capsys: pytest.CaptureFixture[str]):
    """No traceback for what a person can cause."""
    assert main(["cluster", "status", "--data", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"myqueue: there is no cluster in {tmp_path / 'none'}: start one by 'up'\n"
    assert not (tmp_path / "none").exists()


def test_reset_wants_a_yes(tmp_path, capsys: pytest.CaptureFixture[str]):
    """Nothing is deleted by a slip."""
    assert main(["cluster", "reset", "--data", str(tmp_path)]) == 2
    assert "say --yes" in capsys.readouterr().err
    assert tmp_path.exists()


@pytest.mark.parametrize("words", [["--whole", "one", "two"], ["one", "--whole", "two"], ["one", "two", "--whole"]])
def test_files_may_stand_before_and_after_an_option(words: list[str]):
    """``produce TOPIC --whole FILE`` is what people type; argparse alone refuses it."""
    arguments = _parse(["produce", "topic", *words])
    assert (arguments.topic, arguments.files, arguments.whole) == ("topic", ["one", "two"], True)


@pytest.mark.parametrize("words", [["produce", "topic", "--whole", "file", "--nonsense"], ["brokers", "--nonsense"], ["lag", "topic", "1", "more"]])
def test_what_nobody_knows_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]):
    """Only files are taken after an option."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--brokers", "0"], ["--managers", "2"], ["--port", "99999"], ["--port", "7", "--port", "7"]])
def test_a_shape_that_no_cluster_has_is_usage(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It is said before anything is made."""
    assert main(["cluster", "up", "--data", str(tmp_path / "none"), *words]) == 2
    assert capsys.readouterr().err.startswith(f"myqueue: {words[0]} ")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql://h:port/d"])
def test_a_bad_server_url_leaves_no_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A folder made for a server that cannot be named could be neither started nor reset."""
    monkeypatch.setenv("DATABASE_URL", url)
    assert main(["cluster", "up", "--data", str(tmp_path / "none"), "--port", "0"]) == 1
    assert capsys.readouterr().err.startswith("myqueue: DATABASE_URL ")
    assert not (tmp_path / "none").exists()


def test_down_of_a_folder_without_a_cluster_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A mistyped folder is not taken for a cluster that is down."""
    assert main(["cluster", "down", "--data", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"myqueue: there is no cluster in {tmp_path / 'none'}")


@pytest.mark.parametrize("words", [["--bootstrap", "h:1", "remove", "3"], ["remove", "3", "--bootstrap", "h:1"],
                                   ["--bootstrap", "other:1", "remove", "--bootstrap", "h:1", "3"]])
def test_an_address_counts_before_and_behind_the_command(words: list[str]):
    """Nothing is removed from another cluster than the one that was named."""
    arguments = _parse(["brokers", *words])
    assert (arguments.bootstrap, arguments.broker_id) == ("h:1", 3)


@pytest.mark.parametrize("words", [["--json"], ["--json", "list"], ["list", "--json"]])
def test_brokers_alone_is_a_list(words: list[str]):
    assert _parse(["brokers", *words]).json
    assert not _parse(["brokers", *(word for word in words if word != "--json")]).json


class Moves:
    """Stands for an AdminClient; what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.after = PartitionDescription(0, 1, (1, 2), 3, "ACTIVE", (2, 3))

    def __enter__(self) -> Moves:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_topic(self, topic: str) -> None:
        if topic != "t":
            raise UnknownTopicError(f"Topic '{topic}' does not exist")

    def move_partition(self, topic: str, partition: int, brokers: list[int] | None) -> PartitionDescription:
        self.asked.append((topic, partition, brokers))
        return self.after

    def wait_for_move(self, topic: str, partition: int, timeout_seconds: float) -> PartitionDescription:
        self.asked.append((topic, partition, timeout_seconds))
        if timeout_seconds < 1:
            raise UnavailableError("partition 0 of topic t is still moving from [1, 2] to [2, 3]")
        return PartitionDescription(0, 2, (2, 3), 5, "ACTIVE")


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    made = Moves()
    monkeypatch.setattr("myqueue.cli.topics.admin", lambda arguments: made)
    return made


@pytest.mark.parametrize(("words", "asked", "shown"), [
    (["--brokers", "2,3"], [("t", 0, [2, 3])], "partition 0 of topic t is on brokers 1, 2 and moves to brokers 2, 3\n"),
    (["--brokers", "2,3", "--wait", "9"], [("t", 0, [2, 3]), ("t", 0, 9.0)], "partition 0 of topic t is on brokers 2, 3\n"),
    (["--stop"], [("t", 0, None)], "partition 0 of topic t is on brokers 1, 2 and moves to brokers 2, 3\n")])
def test_a_partition_is_moved(moves: Moves, capsys: pytest.CaptureFixture[str], words: list[str], asked: list[object], shown: str):
    assert main(["topics", "move", "t", "--partition", "0", *words]) == 0
    assert (moves.asked, capsys.readouterr().out) == (asked, shown)


def test_a_move_that_is_not_done_in_time_is_1_and_goes_on(moves: Moves, capsys: pytest.CaptureFixture[str]):
    assert main(["topics", "move", "t", "--partition", "0", "--brokers", "2,3", "--wait", "0.5"]) == 1
    assert capsys.readouterr().err == "myqueue: partition 0 of topic t is still moving from [1, 2] to [2, 3]\n"
    assert main(["topics", "move", "nope", "--partition", "0", "--brokers", "2"]) == 1
    assert "nope" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--brokers", ""], ["--brokers", "1,x"], ["--brokers", "1,,2"], ["--brokers", "0"],
                                   ["--brokers", "1", "--stop"], ["--brokers", "1", "--wait", "-1"]])
def test_a_move_to_nowhere_is_wrong_usage(moves: Moves, capsys: pytest.CaptureFixture[str], words: list[str]):
    with pytest.raises(SystemExit) as ended:
        main(["topics", "move", "t", "--partition", "0", *words])
    assert (ended.value.code, moves.asked) == (2, [])
    assert "usage:" in capsys.readouterr().err
