"""The process model with real gunicorn processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from myqueue.supervisor.ports import PortKeeper
from tests.support.raw_http import RawConnection
from tests.support.service import Service, run_to_end, service
from tests.support.waiting import wait_until

FRAME = "tests.support.frame_service"


@pytest.fixture(scope="module")
def frame() -> Iterator[Service]:
    """One service for the tests that leave it running."""
    with service(FRAME) as running:
        yield running


def test_a_worker_gives_its_sign_of_life_on_no_disk(frame: Service) -> None:
    """Where there is a folder in memory: a file's time on a disk waits for the syncs of all who write there."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    workers = frame.workers()
    assert workers
    for pid in workers:
        opened = [Path(os.readlink(file)) for file in Path(f"/proc/{pid}/fd").iterdir()]
        assert [str(path.parent) for path in opened if path.name.startswith("wgunicorn-")] == [folder]


def test_a_taken_port_is_one_clear_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run_to_end(["-m", FRAME, "--port", str(port)])
    assert (1, "", f"frame: cannot listen on 127.0.0.1:{port}: Address already in use\n") == (code, out, err)


def test_an_address_that_others_can_reach_is_refused(keeper: PortKeeper) -> None:
    code, _, err = run_to_end(["-m", FRAME, "--port", str(keeper.pick()), "--host", "0.0.0.0"])
    assert 1 == code
    assert err.startswith("frame: --host 0.0.0.0 can be reached by other machines")
    assert 1 == err.count("\n")


def test_a_fault_point_outside_test_mode_stops_the_start(keeper: PortKeeper) -> None:
    code, _, err = run_to_end(["-m", FRAME, "--port", str(keeper.pick())], extra={"MYQUEUE_FAULT": "here"})
    assert (1, "frame: MYQUEUE_FAULT is for tests: it needs MYQUEUE_TEST_MODE=1\n") == (code, err)


def test_sigterm_ends_an_idle_service_soon_with_code_0_and_frees_the_port() -> None:
    with service(FRAME) as running:
        workers = running.workers()
        began = time.monotonic()
        assert 0 == running.terminate()
        assert time.monotonic() - began < 3
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
        socket.create_server(("127.0.0.1", running.port)).close()


def test_a_connection_that_says_nothing_does_not_hold_up_the_end() -> None:
    with service(FRAME) as running, socket.create_connection(("127.0.0.1", running.port), 5):
        connected = time.monotonic()
        wait_until(lambda: running.answers("/livez") and time.monotonic() - connected > 0.3, what="the connection to be one that waits")
        began = time.monotonic()
        assert 0 == running.terminate()
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_a_long_poll_at_once_and_answers_it(number: signal.Signals) -> None:
    with service(FRAME) as running, ThreadPoolExecutor(1) as pool:
        poll = pool.submit(requests.get, running.url + "/poll?seconds=30", timeout=20)
        wait_until(lambda: requests.get(running.url + "/counts", timeout=5).json()["polls"] == 1, what="the poll to be under way")
        began = time.monotonic()
        running.process.send_signal(number)
        assert 0 == running.process.wait(10)
        assert time.monotonic() - began < 4
        assert {"woken": False} == {"woken": poll.result(1).json()["woken"]}


def test_a_wake_in_one_worker_ends_the_poll_in_another() -> None:
    """Three workers; polls and wakes land where they like, and each poll ends in a moment."""
    with service(FRAME, "--workers", "3") as running, ThreadPoolExecutor(12) as pool:
        wait_until(lambda: len({requests.get(running.url + "/echo", timeout=5).json()["pid"] for _ in range(12)}) > 1, what="a second worker")
        polls = [pool.submit(requests.get, running.url + "/poll?seconds=20", timeout=25) for _ in range(12)]
        done = threading.Event()

        def wake_until_done() -> int:
            while not done.is_set():
                pid = requests.post(running.url + "/wake", timeout=5).json()["pid"]
                done.wait(0.2)
            return int(pid)

        waker = threading.Thread(target=wake_until_done)
        waker.start()
        answers = [poll.result(20).json() for poll in polls]
        done.set()
        waker.join(5)
    assert all(answer["woken"] and answer["seconds"] < 5 for answer in answers), answers
    assert len({answer["pid"] for answer in answers}) > 1


def test_a_fault_point_kills_the_worker_and_the_service_goes_on() -> None:
    with service(FRAME, extra={"MYQUEUE_FAULT": "here:2", "MYQUEUE_TEST_MODE": "1"}) as running:
        [before] = running.workers()
        assert 200 == requests.get(running.url + "/fault", timeout=5).status_code
        with pytest.raises(requests.ConnectionError):
            requests.get(running.url + "/fault", timeout=5)
        wait_until(lambda: running.workers() not in ([], [before]) and running.answers(), what="another worker")


def test_a_killed_worker_is_replaced_with_its_background_threads() -> None:
    with service(FRAME) as running:
        [before] = running.workers()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: running.workers() not in ([], [before]) and running.answers(), what="another worker")
        wait_until(lambda: requests.get(running.url + "/counts", timeout=5).json()["ticks"] > 2, what="its background thread")


def test_metrics_are_summed_over_the_workers_and_their_files_are_gone_afterwards(tmp_path: Path) -> None:
    with service(FRAME, "--workers", "2", extra={"TMPDIR": str(tmp_path)}) as running:
        for _ in range(20):
            requests.get(running.url + "/echo", timeout=5)
        text = requests.get(running.url + "/metrics", timeout=5).text
        assert 'myqueue_requests_total{method="GET",route="/echo",status="200"} 20.0' in text
        assert 1 == len([entry for entry in tmp_path.iterdir() if entry.is_dir()])
        assert 0 == running.terminate()
    assert [] == list(tmp_path.iterdir())


def test_a_worker_that_is_just_starting_keeps_nobody_from_the_metrics(tmp_path: Path) -> None:
    """Its files are there before anything is in them."""
    with service(FRAME, "--workers", "2", extra={"TMPDIR": str(tmp_path)}) as running:
        requests.get(running.url + "/echo", timeout=5)
        [folder] = (entry for entry in tmp_path.iterdir() if entry.is_dir())  # beside it, for a moment, a worker's sign of life
        for kind in ("counter", "histogram", "gauge_liveall"):
            (folder / f"{kind}_99999.db").touch()
        answer = requests.get(running.url + "/metrics", timeout=5)
        assert (200, True) == (answer.status_code, 'myqueue_requests_total{method="GET",route="/echo",status="200"} 1.0' in answer.text)


def test_the_log_is_json_line_by_line(frame: Service) -> None:
    with RawConnection(frame.port) as connection:
        connection.send(b"rubbish\r\n\r\n")
        assert 400 == connection.answer().status
    lines = [json.loads(line) for line in frame.log().splitlines()]
    assert lines
    assert all({"time", "level", "node", "message"} <= line.keys() for line in lines)


@pytest.mark.parametrize(("data", "status"), [
    (b"rubbish\r\n\r\n", 400), (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414), (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9_000 + b"\r\n\r\n", 431), (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400), (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: odd\r\n\r\n", 501), (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
])
def test_what_cannot_be_read_is_answered_in_json_with_the_fields_of_every_face(frame: Service, data: bytes, status: int) -> None:
    with RawConnection(frame.port) as connection:
        connection.send(data)
        answer = connection.answer()
    body = json.loads(answer.body)
    assert (status, "application/json") == (answer.status, answer.headers["Content-Type"])
    assert "bad_request" == body["error"]["code"]
    assert ("/echo" in data.decode("latin-1") and "zz" in data.decode("latin-1")) or ("failure", body["reason"]) == (body["status"], body["message"])
    assert frame.answers()


@pytest.mark.parametrize("headers", [{"SCRIPT_NAME": "/echo"}, {"PATH_INFO": "/livez"}, {"Script-Name": "/echo"}, {"X-Forwarded-Proto": "https"},
                                     {"X-Forwarded-Prefix": "/echo"}])
def test_no_header_changes_what_path_or_scheme_the_app_sees(frame: Service, headers: dict[str, str]) -> None:
    with RawConnection(frame.port) as connection:
        seen = json.loads(connection.ask("/echo", headers=headers).body)
    assert ("/echo", "http") == (seen["path"], seen["scheme"])


def test_two_requests_on_one_connection_are_never_misread(frame: Service) -> None:
    """A GET with a body that no view reads, then another request behind it."""
    with RawConnection(frame.port) as connection:
        for _ in range(3):
            assert 200 == connection.ask("/livez", body=b'{"a": 1}').status
            assert "hello" == json.loads(connection.ask("/echo", body=b"hello").body)["body"]


def test_a_body_with_wrong_chunks_is_the_caller_s_mistake(frame: Service) -> None:
    for body in (b"zz\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n"):
        with RawConnection(frame.port) as connection:
            connection.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
            answer = connection.answer()
        assert (400, "bad_request") == (answer.status, json.loads(answer.body)["error"]["code"])


def test_a_body_that_nobody_reads_and_that_is_not_well_framed_ends_the_connection(frame: Service) -> None:
    """One answer, and what stands behind the body is no request."""
    for body in (b"1;\nx\r\n0\r\n\r\n", b"zz\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n"):
        with RawConnection(frame.port) as connection:
            connection.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
            connection.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            answers = connection.rest()
        assert 1 == answers.count(b"HTTP/1.1 "), answers
        assert answers.startswith(b"HTTP/1.1 404"), answers
