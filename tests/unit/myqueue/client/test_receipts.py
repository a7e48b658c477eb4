"""A producer's receipts: a line for each acknowledged batch, before anybody is told."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from myqueue.client.receipts import ReceiptFile
from myqueue.client.sender import Sender
from myqueue.errors import BadRequestError, ConfigurationError, DuplicateSequenceError
from myqueue.protocol.receipts import BatchReceipt, line_of, receipts_in
from tests.unit.myqueue.client.test_sender import World, numbered

pytestmark = pytest.mark.timeout(30)
NOW = 1_700_000_000_000_000
FIRST = BatchReceipt("a", 0, 10, 0, NOW, 1)


def world_with(path: Path) -> World:
    world = World()
    world.receipts = ReceiptFile(path)
    world.sender = Sender(world.connection, world.accumulator, threading.Condition(), world.sender._presence, receipts=world.receipts)
    return world


def written(path: Path) -> list[BatchReceipt | None]:
    with path.open("rb") as file:
        return list(receipts_in(file))


def test_each_acknowledged_batch_has_a_line(tmp_path: Path) -> None:
    """Of what leaves together one; its fields are those of the acknowledgement."""
    world = world_with(tmp_path / "r")
    world.send(*numbered(30))
    world.run()
    line = b'{"topic":"a","topic_id":1,"partition":0,"base_offset":0,"record_count":30,"append_time":1700000000000000}\n'
    assert line == (tmp_path / "r").read_bytes()
    world.send(b"more")
    world.run()
    assert [30, 1] == [receipt.record_count for receipt in written(tmp_path / "r")]


def test_an_acknowledgement_that_was_lost_gives_one_receipt(tmp_path: Path) -> None:
    """The one of the repetition; what was refused has none."""
    world = world_with(tmp_path / "r")
    world.send(*numbered(10))
    world.transport.lose_answers(3)
    world.run()
    world.send(*numbered(10))
    world.transport.refuse(BadRequestError("no"))
    world.run()
    assert [FIRST] == written(tmp_path / "r")


def test_what_was_stored_before_in_a_place_that_is_not_known_has_a_receipt_without_one(tmp_path: Path) -> None:
    world = world_with(tmp_path / "r")
    world.send(*numbered(7))
    world.transport.refuse(DuplicateSequenceError())
    world.run()
    assert [BatchReceipt("a", 0, 7, None, None)] == written(tmp_path / "r")


def test_the_receipt_is_there_before_the_delivery_is_done(tmp_path: Path) -> None:
    world = world_with(tmp_path / "r")
    [delivery] = world.send(b"1")
    seen, write = [], world.receipts.write
    world.receipts.write = lambda receipt: (write(receipt), seen.append((delivery.is_done(), len(written(tmp_path / "r")))))
    world.run()
    assert [(False, 1)] == seen
    assert delivery.is_done()


def test_a_receipt_that_cannot_be_written_is_told_once_and_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is tried again, on a line of its own where a part of the last one was written."""
    world, write, full = world_with(tmp_path / "r"), os.write, [True, True]

    def on_a_full_disk(descriptor: int, line: bytes) -> int:
        if not full:
            return write(descriptor, line)
        if full.pop():
            write(descriptor, line[:20])
            if not full:
                return 20
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("myqueue.client.receipts.os.write", on_a_full_disk)
    for number in range(3):
        [delivery] = world.send(b"%d" % number)
        world.run()
        assert number == delivery.result(0).offset
    error = world.receipts.take_error()
    assert (2, str(tmp_path / "r")) == (error.batches, error.path)
    assert "2 batches were acknowledged and have no receipts" in error.message and "do not send them again" in error.message
    assert world.receipts.take_error() is None
    assert [None, None, BatchReceipt("a", 0, 1, 2, NOW, 1)] == written(tmp_path / "r")


def test_a_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        ReceiptFile(tmp_path)


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    """A late answer must not go to whatever file has the number by then."""
    file = ReceiptFile(tmp_path / "r")
    file.close()
    with (tmp_path / "other").open("wb"):
        file.write(FIRST)
    file.close()
    assert (b"", b"", None) == ((tmp_path / "r").read_bytes(), (tmp_path / "other").read_bytes(), file.take_error())


@pytest.mark.parametrize("length", range(1, len(line_of(FIRST))))
def test_what_a_writer_that_died_left_hides_no_other_receipt(tmp_path: Path, length: int) -> None:
    """Wherever its line was cut: the next one to open the file begins a line; one that had it open goes on behind it."""
    torn, whole = line_of(FIRST)[:length], line_of(FIRST)
    is_whole = torn.endswith(b"}")
    left = [FIRST] if is_whole else [None]
    assert left == list(receipts_in([torn]))
    assert [None, FIRST] == list(receipts_in([torn + whole])) or is_whole
    (tmp_path / "r").write_bytes(torn)
    file = ReceiptFile(tmp_path / "r")
    file.write(FIRST)
    file.close()
    assert [*left, FIRST] == written(tmp_path / "r")


@pytest.mark.parametrize("line", [b"hello\n", b"{}\n", b'{"topic":"a"}\n', line_of(FIRST).replace(b"10", b"0"),
                                  line_of(FIRST).replace(b'"a"', b'"/"'), line_of(FIRST).replace(b":0,", b":-1,"), b"\x00\x00\n", b"[1]\n"])
def test_a_line_that_is_no_receipt_is_named(line: bytes) -> None:
    with pytest.raises(BadRequestError, match="line 2 is no receipt"):
        list(receipts_in([line_of(FIRST), line]))


def test_threads_and_files_that_share_a_path_write_whole_lines(tmp_path: Path) -> None:
    """Each with the file open for itself, as several processes have it."""
    def work(partition: int) -> None:
        file = ReceiptFile(tmp_path / "r")
        for number in range(300):
            file.write(BatchReceipt("a", partition, 1, number, NOW, 1))
        file.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = written(tmp_path / "r")
    assert [list(range(300))] * 4 == [[one.base_offset for one in found if one.partition == partition] for partition in range(4)]
