"""Settings: flag beats environment beats default, and what cannot work stops the start in one sentence."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar

import pytest

from myqueue.errors import ConfigurationError
from myqueue.settings import MASK, add_arguments, load, parse, setting, shown


@dataclass(frozen=True)
class Sample:
    """One field of each kind."""

    ENV_PREFIX: ClassVar[str] = "MYQUEUE_SAMPLE"

    database_url: str = setting(help="where the database is", secret=True)
    port: int = setting(5001, help="where to listen", minimum=1, maximum=65_535)
    wait_seconds: float = setting(1.5, help="how long to wait", minimum=0)
    is_loud: bool = setting(False, help="whether to say more")
    level: str = setting("info", help="how much to log", choices=("debug", "info"))
    managers: tuple[str, ...] = setting((), help="the managers' URLs")
    node_id: int | None = setting(None, help="which node this is")
    shared: str = setting("", help="a variable of another name", env="MYQUEUE_TOKEN")

    def validate(self) -> None:
        if self.is_loud and self.level == "info":
            raise ConfigurationError("--is-loud needs --level debug")


GIVEN = {"database_url": "postgresql://u:secret@h/d"}


def test_the_default_holds_where_nothing_is_given() -> None:
    assert Sample(GIVEN["database_url"]) == load(Sample, GIVEN, {})


def test_the_environment_beats_the_default_and_a_flag_beats_both() -> None:
    environment = {"MYQUEUE_SAMPLE_PORT": "6000"}
    assert 6000 == load(Sample, GIVEN, environment).port
    assert 7000 == load(Sample, {**GIVEN, "port": "7000"}, environment).port


@pytest.mark.parametrize(("name", "text", "value"), [
    ("wait_seconds", "2", 2.0), ("is_loud", "no", False), ("is_loud", "0", False), ("managers", " http://a, http://b ,", ("http://a", "http://b")),
    ("node_id", "3", 3), ("shared", "t", "t"), ("port", "1", 1), ("port", "65535", 65_535),
])
def test_every_kind_is_read(name: str, text: str, value: object) -> None:
    assert value == getattr(load(Sample, {**GIVEN, name: text}, {}), name)


@pytest.mark.parametrize(("name", "text", "sentence"), [
    ("port", "0", "--port is 0: the least is 1"),
    ("port", "65536", "--port is 65536: the most is 65535"),
    ("port", "http", "--port is 'http'"),
    ("port", "", "--port is ''"),
    ("wait_seconds", "-1", "--wait-seconds is -1.0: the least is 0"),
    ("is_loud", "maybe", "wants true or false"),
    ("level", "shout", "must be one of debug, info"),
])
def test_what_is_malformed_or_out_of_bounds_is_refused_with_its_source(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(Sample, {**GIVEN, name: text}, {})
    assert sentence in raised.value.message


def test_the_sentence_names_the_variable_where_it_came_from_there() -> None:
    with pytest.raises(ConfigurationError, match="MYQUEUE_SAMPLE_PORT is 0"):
        load(Sample, GIVEN, {"MYQUEUE_SAMPLE_PORT": "0"})


def test_an_unknown_variable_under_the_prefix_stops_the_start_and_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown variable MYQUEUE_SAMPLE_PROT: Sample knows .*MYQUEUE_SAMPLE_PORT"):
        load(Sample, GIVEN, {"MYQUEUE_SAMPLE_PROT": "1"})


def test_variables_of_others_are_not_ours_to_judge() -> None:
    load(Sample, GIVEN, {"MYQUEUE_OTHER_PORT": "1", "MYQUEUE_SAMPLES": "1", "HOME": "/", "MYQUEUE_TOKEN": "t"})


def test_a_setting_without_default_must_be_given() -> None:
    with pytest.raises(ConfigurationError, match=r"--database-url \(or MYQUEUE_SAMPLE_DATABASE_URL\) is needed"):
        load(Sample, {}, {})


def test_impossible_combinations_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs --level debug"):
        load(Sample, {**GIVEN, "is_loud": "yes"}, {})


def test_secrets_are_masked_when_shown_in_help_and_in_errors() -> None:
    assert MASK == shown(load(Sample, GIVEN, {}))["database_url"]
    assert "" == shown(load(Sample, GIVEN, {}))["shared"]

    @dataclass(frozen=True)
    class Secretive:
        ENV_PREFIX: ClassVar[str] = "MYQUEUE_SECRETIVE"
        pin: int = setting(1234, help="a secret number", secret=True)

    parser = argparse.ArgumentParser()
    add_arguments(parser, Secretive)
    assert "1234" not in parser.format_help()
    with pytest.raises(ConfigurationError) as raised:
        load(Secretive, {"pin": "hunter2"}, {})
    assert "hunter2" not in raised.value.message


def test_help_names_flag_variable_and_default() -> None:
    parser = argparse.ArgumentParser(prog="sample")
    add_arguments(parser, Sample)
    text = " ".join(parser.format_help().split())
    assert "--wait-seconds SECONDS how long to wait (MYQUEUE_SAMPLE_WAIT_SECONDS; default: 1.5)" in text
    assert "(MYQUEUE_SAMPLE_DATABASE_URL; required)" in text


def test_a_bad_setting_ends_the_program_with_one_sentence_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(Sample, ["--database-url", "x", "--port", "0"], {}, prog="sample", description="d")
    assert 2 == ended.value.code
    assert "sample: --port is 0: the least is 1\n" == capsys.readouterr().err
