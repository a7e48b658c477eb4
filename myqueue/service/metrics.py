"""The catalogue of metrics: name, meaning, and what an operator should do. Exposed as Prometheus text at /metrics, listed in METRICS.md.

Import this in a worker process only, after :func:`prepare`: the library decides at import whether it sums over processes.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..errors import MyQueueError

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVERY_NODE, BROKER, MANAGER, BALANCER = "every node", "broker", "manager", "balancer"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Series:
    """A row of the catalogue."""

    name: str
    kind: str
    node: str  # who has it
    meaning: str
    remedy: str
    labels: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        return f"{self.meaning} {self.remedy}"


CATALOGUE: list[Series] = []


def _noted(*row: Any) -> Series:
    CATALOGUE.append(Series(*row))
    return CATALOGUE[-1]


def _counter(name: str, node: str, meaning: str, remedy: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(name, _noted(name, "counter", node, meaning, remedy, labels).help, labels)


def _gauge(name: str, node: str, meaning: str, remedy: str, labels: tuple[str, ...] = (), *, over_processes: Any) -> Gauge:
    return Gauge(name, _noted(name, "gauge", node, meaning, remedy, labels).help, labels, multiprocess_mode=over_processes)


def _histogram(name: str, node: str, meaning: str, remedy: str, labels: tuple[str, ...] = (), *, buckets: Sequence[float] = _LATENCY) -> Histogram:
    return Histogram(name, _noted(name, "histogram", node, meaning, remedy, labels).help, labels, buckets=buckets)


class Looked:
    """A gauge that is looked up when it is asked for: what it is of may come and go."""

    def __init__(self, name: str, node: str, meaning: str, remedy: str, labels: tuple[str, ...] = ()) -> None:
        self._row = _noted(name, "gauge", node, meaning, remedy, labels)

    def at(self, found: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
        """The series with these values, by the values of their labels."""
        family = GaugeMetricFamily(self._row.name, self._row.help, labels=self._row.labels)
        for labels, value in sorted(found.items()):
            family.add_metric(labels, value)
        return family


REQUESTS = _counter("myqueue_requests_total", EVERY_NODE, "Requests answered, by route, method and status.", "Many 5xx: see the node's log.",
                    ("route", "method", "status"))
REQUEST_SECONDS = _histogram("myqueue_request_seconds", EVERY_NODE, "Time to answer a request, by route; long polls wait on purpose.",
                             "High for appends: see myqueue_commit_seconds. High everywhere: the machine has too few cores.", ("route",))
LOOKS_FAILED = _counter("myqueue_looks_failed_total", EVERY_NODE, "Times that /metrics could not look up what it shows.",
                        "Those series are missing then: see the node's log, and whether its database answers.")
RECORDS_APPENDED = _counter("myqueue_records_appended_total", BROKER, "Records appended and committed to disk.",
                            "Falls to 0 under load: producers meet 503, see myqueue_append_queued_bytes.")
BYTES_APPENDED = _counter("myqueue_bytes_appended_total", BROKER, "Bytes of batches appended and committed to disk.",
                          "Divided by records: the size of a message; the disk fills by it times the replicas.")
QUOTA_REFUSED = _counter("myqueue_appends_over_quota_total", BROKER,
                         "Appends refused with 429, since a partition had taken what its topic's quota allows.",
                         "Grows: producers wait. Raise the topic's produce_bytes_per_second, or give it more partitions: each has that much.")
RECORDS_READ = _counter("myqueue_records_read_total", BROKER, "Records handed to readers, in whole blocks.",
                        "Far above the records appended: many consumers read the same, or one reads again and again.")
APPEND_GROUP = _histogram("myqueue_append_group_requests", BROKER, "Requests written by one commit.", "Near 1 under load: the disk is not the limit.",
                          buckets=(1, 2, 4, 8, 16, 32, 64, 128))
COMMIT_SECONDS = _histogram("myqueue_commit_seconds", BROKER, "Time of one append transaction, with its commit.", "Above 0.1: look at the disk.")
QUEUED_BYTES = _gauge("myqueue_append_queued_bytes", BROKER, "Bytes waiting to be written.",
                      "At the bound, producers get 503: the disk is too slow, or a partition has no majority.", over_processes="livesum")
LONG_POLLS = _gauge("myqueue_long_polls", BROKER, "Long polls and streams that wait for data.",
                    "At their share of the threads more are refused: raise these.", over_processes="livesum")
PARTITIONS_HELD = Looked("myqueue_partitions_held", BROKER, "Partitions that this broker holds, by what it does for them.",
                         "damaged: it is made anew from another replica within minutes, or `myqueue health` says why not. seeding: it gets the "
                         "beginning of the log.", ("role",))
STORED_MESSAGES = Looked("myqueue_stored_messages", BROKER, "Messages that can be read, of the partitions that this broker leads, by topic.",
                         "Grows for ever: the topic has no retention.", ("topic",))
STORED_BYTES = Looked("myqueue_stored_bytes", BROKER, "Bytes on this broker's disk, by topic, replicas included.",
                      "Near the disk's size: set retention_bytes or retention_ms, or add a broker.", ("topic",))
REPLICA_MISSING = Looked("myqueue_replica_missing_entries", BROKER, "Entries that another broker lacks of what this one leads: the most of any "
                         "partition, by that broker.",
                         "Does not fall: that broker is down, cut off or slower than producers; with a second one, writes stop.", ("replica",))
COMMANDS = _counter("myqueue_commands_total", MANAGER, "Metadata commands applied, by type and result.",
                    "Many refused: somebody asks for what is not possible; see the answers.", ("type", "result"))
APPLIED_INDEX = _gauge("myqueue_applied_index", MANAGER, "Metadata index applied on this manager.", "Behind the others: it is catching up.",
                       over_processes="max")
ACTORS = _gauge("myqueue_actors", MANAGER, "Brokers, managers, producers and consumers by state, as the write manager has heard of them.",
                "dead: see GET /health.", ("type", "state"), over_processes="max")
PARTITION_ELECTIONS = _counter("myqueue_partition_elections_total", MANAGER, "Elections of partitions held by the write manager, by result.",
                               "Many no_leader: a majority of some partition's replicas does not answer.", ("result",))
IS_WRITE_MANAGER = Looked("myqueue_is_write_manager", MANAGER, "1 on the manager that orders metadata commands, 0 on the others.",
                          "The sum is 0 for more than some seconds: no majority of the managers is up.")
FRESHNESS = Looked("myqueue_freshness_seconds", MANAGER, "How long ago this manager heard of the write manager; 0 there.",
                   "Grows: it is cut off and answers with what it knew then.")
PARTITION_CONDITIONS = Looked("myqueue_partitions", MANAGER, "Partitions of all topics, and those that are not well, as this manager sees brokers.",
                              "leaderless: an election is due. under_replicated: a broker is away. without_majority: writes are refused until "
                              "brokers return; `myqueue health` names them.", ("condition",))
GROUP_MEMBERS = Looked("myqueue_group_members", MANAGER, "Members of each consumer group.", "0: nobody reads for it, and its lag grows.", ("group",))
GROUP_LAG = Looked("myqueue_group_lag", MANAGER, "Messages that a group with members has not committed, by topic; looked up every 10 s at most.",
                   "Grows: its members are too slow or too few; more than there are partitions do not help.", ("group", "topic"))
UPSTREAM_ERRORS = _counter("myqueue_upstream_errors_total", BALANCER, "Requests that a balancer could not pass on, by component.",
                           "Grows for one component: that node is down or overloaded.", ("component",))


Family = GaugeMetricFamily  # the values of one series as of now
Look = Callable[[], Iterable[Family]]


def counted(route: str, method: str, status: int, seconds: float) -> None:
    """A request was answered."""
    REQUESTS.labels(route, method, status).inc()
    REQUEST_SECONDS.labels(route).observe(seconds)


class _Families(Collector):
    def __init__(self, families: Sequence[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families


class _Workers(multiprocess.MultiProcessCollector):
    """What the node's workers have counted. One that is just starting has files with nothing in them yet, which the library cannot read."""

    def collect(self) -> Iterable[Any]:
        return self.merge([path for path in glob.glob(os.path.join(self._path, "*.db")) if _size(path)], accumulate=True)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # a worker that has ended takes the files of its live gauges along
        return 0


def exposition(look: Look = tuple) -> tuple[bytes, str]:
    """All series as text, summed over the node's worker processes, and the content type.

    Args:
        look: looks up what is shown as of now; where it fails those series are missing, and that is counted.
    """
    families: Sequence[GaugeMetricFamily] = ()
    try:
        families = list(look())
    except MyQueueError as error:
        LOOKS_FAILED.inc()
        _log.warning("metrics: %s", error.message, extra={"code": error.code})
    registry: CollectorRegistry = REGISTRY
    if values.ValueClass is not values.MutexValue:
        registry = CollectorRegistry()
        _Workers(registry)
    looked = CollectorRegistry()
    looked.register(_Families(families))
    return generate_latest(registry) + generate_latest(looked), CONTENT_TYPE_LATEST


def table() -> str:
    """METRICS.md: what an operator reads."""
    rows = [f"| `{one.name}` | {one.node} | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} | {one.remedy} |"
            for one in CATALOGUE]
    head = ("# Metrics", "",
            "What every node tells at `/metrics`, as Prometheus text. Made from `myqueue/service/metrics.py`; a test compares the two.", "",
            "| series | on | kind | labels | meaning | what to do |", "|---|---|---|---|---|---|")
    return "\n".join([*head, *rows, ""])
