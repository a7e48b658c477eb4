"""The command line's tree."""

from __future__ import annotations

import pytest

from myqueue.cli.main import GROUPS, main


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
