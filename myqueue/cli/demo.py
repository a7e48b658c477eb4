"""``demo``: the whole job on real files, with a check of every count.

A cluster of its own, a producer per file, two consumers per topic, then one spark-submit application that exports the
topics to Parquet and audits them. With ``--chaos`` a broker and the write manager are killed in the middle. Whatever
happens, also on Ctrl-C: the clients stop, Spark ends, the cluster goes down and its data folder with it, unless ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..client.consumer import MyConsumer
from ..client.producer import MyProducer
from ..clock import SystemClock
from ..errors import MyQueueError
from ..protocol.types import Message
from ..supervisor import Cluster, ClusterSpec
from ..supervisor.process import descendants, is_alive
from . import workload
from .harm import BROKERS_MIN, MANAGERS_MIN, Harm
from .workload import Source

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "scripts" / "sample"
CONSUMERS_PER_TOPIC = 2
SILENCE_SECONDS_MAX = 30.0  # a consumer that hears nothing for so long has lost something
DELIVERY_SECONDS_MAX = 120.0
SPARK_SECONDS_MAX = 600.0
END_SECONDS = 10.0  # for Spark to end
INTERRUPTS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM  # the last one raises again what was lost (cli/interrupts.py)
POLL_SECONDS = 0.02


def add_parser(groups: Any) -> None:
    parser = groups.add_parser("demo", help="start a cluster, send files through it, check every count",
                               description=__doc__.replace("``", "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a producer's log; without any: the sample logs that come with MyQueue")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the Parquet files and the audit's report there")
    parser.add_argument("--keep", action="store_true", help="leave the data folder behind and say where it is (the cluster is stopped)")
    parser.add_argument("--chaos", action="store_true", help="kill -9 of a broker that leads and of the write manager while messages are sent; both "
                                                              "come back before the audit, which compares the replicas")
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--managers", type=int, default=3, metavar="N", help="default 3")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    paths = args.files or sorted(SAMPLE.glob("*.txt")) + sorted(SAMPLE.glob("*.log"))
    try:
        sources = workload.read_sources(paths)
    except OSError as error:
        print(f"demo: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if not workload.counts(sources):
        print("demo: the files hold no line", file=sys.stderr)
        return 2
    if args.chaos and (args.brokers < BROKERS_MIN or args.managers < MANAGERS_MIN):
        print(f"demo: --chaos needs at least {BROKERS_MIN} brokers and {MANAGERS_MIN} managers, so that a majority is left", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    demo = Demo(sources, keep=args.keep, out=args.out, brokers=args.brokers, managers=args.managers, chaos=args.chaos)
    try:
        return demo.run()
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    except MyQueueError as error:
        print(f"demo: failed: {error.message}", file=sys.stderr)
        return 1
    finally:
        demo.clean_up()


class Demo:
    """One run. ``clean_up`` may be called at any time and leaves nothing behind."""

    def __init__(self, sources: Sequence[Source], *, keep: bool, out: Path | None, brokers: int, managers: int, chaos: bool) -> None:
        self._sources, self._keep, self._brokers, self._managers = sources, keep, brokers, managers
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="myqueue-demo-", dir=os.environ.get("TMPDIR") or "/var/tmp"))  # noqa: S108 - a random name, made for us alone
        self._folder.chmod(0o711)  # PostgreSQL runs as another user where we are root
        self._out = (out or self._folder / "out").resolve()
        self._out_is_kept = out is not None or keep
        self._cluster: Cluster | None = None
        self._spark: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._clients: list[MyProducer | MyConsumer] = []
        self._harm = Harm(self._clock) if chaos else None

    def run(self) -> int:
        expected = workload.counts(self._sources)
        self._say(f"{len(self._sources)} files, {sum(expected.values()):,} lines for {len(expected)} topics: {', '.join(expected)}")
        self._say(f"starting a balancer, {self._managers} managers, {self._brokers} brokers and PostgreSQL in {self._folder}")
        self._cluster = Cluster(self._folder / "cluster", ClusterSpec(brokers=self._brokers, managers=self._managers, ports=(0,)))
        self._cluster.up()
        bootstrap = self._cluster.bootstrap
        self._say(f"the cluster is ready at {bootstrap}")
        produced, consumed, faults, rates = self._move(bootstrap, expected)
        self._say("loading the topics into Parquet and auditing them with spark-submit")
        exported, audited, audit_code = self._pipeline(bootstrap, sorted(expected))
        rows = workload.results(expected, produced, consumed, exported, audited)
        clean = audit_code == 0 and not faults and all(row.agrees for row in rows)
        print("\n" + workload.table(rows) + "\n")
        for fault in faults:
            print(f"  fault: {fault}")
        print(rates)
        print(f"audit: {'clean' if audit_code == 0 else f'exit code {audit_code}, see {self._out}'}")
        kept = f"files: {self._out}" if self._out_is_kept else "files: removed (keep them with --out DIR or --keep)"
        print(kept + (f"; data folder: {self._folder}" if self._keep else ""))
        print(f"demo: {'ok' if clean else 'FAILED'}: {sum(expected.values()):,} lines in {self._clock.monotonic() - self._began:.0f} s")
        return 0 if clean else 1

    def _move(self, bootstrap: str, expected: dict[str, int]) -> tuple[dict[str, int], dict[str, list[int]], list[str], str]:
        """Send all, receive all: produced by topic, consumed by topic and consumer, faults, rates to show."""
        producers = [MyProducer(topics=sorted({line.topic for line in source.lines}), broker=bootstrap) for source in self._sources]
        self._clients += producers
        consumers = [(topic, MyConsumer(topics=[topic], broker=bootstrap)) for topic in expected for _ in range(CONSUMERS_PER_TOPIC)]
        self._clients += [consumer for _, consumer in consumers]
        began = self._clock.monotonic()
        with ThreadPoolExecutor(len(producers) + len(consumers) + 1) as pool:
            harming = pool.submit(self._do_harm, sorted(expected))
            sending = [pool.submit(self._send, producer, source) for producer, source in zip(producers, self._sources, strict=True)]
            receiving = [pool.submit(self._receive, consumer, expected[topic]) for topic, consumer in consumers]
            try:
                _finish(sending, self._say_progress(sending, "producers"))
                sent_seconds = self._clock.monotonic() - began
                _finish(receiving, self._say_progress(receiving, "consumers"))
                harmed = harming.result(DELIVERY_SECONDS_MAX)
            finally:
                self._stopping.set()
                if self._harm is not None:
                    self._harm.give_up()
        received_seconds = self._clock.monotonic() - began
        produced: dict[str, int] = {}
        for counted in sending:
            for topic, number in counted.result().items():
                produced[topic] = produced.get(topic, 0) + number
        consumed: dict[str, list[int]] = {topic: [] for topic in expected}
        faults = []
        for (topic, _), messages in zip(consumers, receiving, strict=True):
            consumed[topic].append(len(messages.result()))
            faults += workload.check_received(topic, self._sources, messages.result())
        total, read = sum(produced.values()), sum(sum(numbers) for numbers in consumed.values())
        for client in self._clients:
            client.stop()
        self._undo_harm(harmed)
        return produced, consumed, faults, (
            f"produced {total:,} messages in {sent_seconds:.1f} s ({total / sent_seconds:,.0f}/s) by {len(producers)} producers; "
            f"consumed {read:,} in {received_seconds:.1f} s by {len(consumers)} consumers, {CONSUMERS_PER_TOPIC} a topic")

    def _say_progress(self, futures: Sequence[Future], what: str) -> Callable[[], None]:
        return lambda: self._say(f"{sum(future.done() for future in futures)} of {len(futures)} {what} are done")

    def _send(self, producer: MyProducer, source: Source) -> dict[str, int]:
        """Send a source's lines; what was delivered, by topic. Raises DeliveryError where something was not."""
        name = source.name.encode()
        deliveries = []
        for place, line in enumerate(source.lines):
            if self._harm is not None and place >= len(source.lines) // 2:
                self._harm.pace(is_last=place == len(source.lines) - 1)
            deliveries.append(producer.send(line.topic, line.value, headers=((workload.SOURCE, name), (workload.LINE, b"%d" % line.number))))
        producer.flush(DELIVERY_SECONDS_MAX)
        delivered: dict[str, int] = {}
        for line, delivery in zip(source.lines, deliveries, strict=True):
            delivery.result(0)
            delivered[line.topic] = delivered.get(line.topic, 0) + 1
        return delivered

    def _do_harm(self, topics: Sequence[str]) -> list[str]:
        """The nodes that were killed."""
        if self._harm is None:
            return []
        assert self._cluster is not None
        names = self._harm.do(self._cluster, topics)
        self._say(f"killed with -9 while messages were on their way: {', '.join(names)}")
        return names

    def _undo_harm(self, names: Sequence[str]) -> None:
        if self._harm is not None:
            assert self._cluster is not None
            self._harm.undo(self._cluster, names)
            self._say(f"{' and '.join(names)} are back, and every partition has all its replicas")

    def _receive(self, consumer: MyConsumer, expected: int) -> list[Message]:
        messages: list[Message] = []
        for message in consumer.get_next(timeout_seconds=SILENCE_SECONDS_MAX):
            messages.append(message)
            if len(messages) >= expected or self._stopping.is_set():
                break
        return messages

    def _pipeline(self, bootstrap: str, topics: Sequence[str]) -> tuple[dict[str, int], dict[str, int], int]:
        """One application exports and audits. Returns the records exported and audited by topic, and its exit code."""
        assert self._cluster is not None
        self._out.mkdir(parents=True, exist_ok=True)
        log = self._out / "spark.log"
        command = [str(PROJECT / "scripts" / "spark-submit"), "export", "--audit", "--bootstrap", bootstrap, "--out", str(self._out),
                   "--topics", ",".join(topics), "--data", str(self._cluster.data)]
        with log.open("wb") as output:
            with _held_back(INTERRUPTS):  # else one could run of which nobody knows
                self._spark = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = self._spark.wait(SPARK_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise MyQueueError(f"spark-submit did not end within {SPARK_SECONDS_MAX:.0f} s") from None
        exported = _counts_in(self._out / "export.json")
        audited = _counts_in(self._out / "audit.json")
        if code not in (0, 1) or not exported:
            print(log.read_text(errors="replace")[-3_000:], file=sys.stderr)
        return exported, audited, code

    def clean_up(self) -> None:
        """Stop everything and remove the data folder. A second Ctrl-C does not stop the cleaning."""
        before = [signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS]
        try:
            self._stopping.set()
            if self._spark is not None:
                _end_group(self._spark)
            if self._cluster is not None:
                self._cluster.down(lasting=self._keep)
            if not self._keep:
                shutil.rmtree(self._folder, ignore_errors=True)
                if self._folder.exists():
                    print(f"demo: {self._folder} could not be removed", file=sys.stderr)
        finally:
            for number, handler in zip(INTERRUPTS, before, strict=True):
                signal.signal(number, handler)

    def _say(self, text: str) -> None:
        print(f"[{self._clock.monotonic() - self._began:5.1f} s] {text}", flush=True)


def _finish(futures: Sequence[Future], progress: Callable[[], None]) -> None:
    """Wait for all, saying every few seconds how far it is; the first failure is raised at once."""
    pending: set[Future] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=5.0, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if pending:
            progress()


def _counts_in(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    return {topic["topic"]: int(topic["messages"]) for topic in json.loads(path.read_text())["topics"]}


@contextmanager
def _held_back(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Let these signals do what they do when the block is over, and not in the middle of it."""
    came: list[int] = []
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started, gently first. Those may outlive it for a moment, and write files meanwhile."""
    if process.returncode is not None:
        return
    tree = descendants(process.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + END_SECONDS
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        while any(map(is_alive, tree)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if process.returncode is not None and not any(map(is_alive, tree)):
            return
