"""Command lines of curl, answered by curl itself; where it is not there, by a reading of the line as far as our documents use it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def answer_to(line: str) -> Answered:
    """What a command line is answered."""
    words = shlex.split(line)
    assert words[0] == "curl", line
    return _by_curl(words) if shutil.which("curl") else _as_curl_does(words[1:])


def _by_curl(words: list[str]) -> Answered:
    done = subprocess.run([*words, "-D", "/dev/stderr"], capture_output=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, f"{words}: {done.stderr!r}"
    first, *rest = done.stderr.decode().replace("\r", "").split("\n")
    return Answered(int(first.split()[1]), dict(line.split(": ", 1) for line in rest if ": " in line), done.stdout)


def _as_curl_does(words: list[str]) -> Answered:
    method, data, url, headers = "", [], "", {"Accept": "*/*", "Accept-Encoding": "identity"}
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            data.append(words.pop(0))
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word != "-s":
            assert not word.startswith("-"), f"curl {word} is not known here"
            url = word
    if data:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    answer = requests.request(method or ("POST" if data else "GET"), url if "://" in url else f"http://{url}", data="&".join(data).encode() or None,
                              headers=headers, timeout=TIMEOUT_SECONDS, allow_redirects=False)
    return Answered(answer.status_code, dict(answer.headers), answer.content)
