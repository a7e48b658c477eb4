"""The catalogue of metrics: name, meaning, and what an operator should do. Exposed as Prometheus text at /metrics.

Import this in a worker process only, after :func:`prepare`: the library decides at import whether it sums over processes.
"""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess, values

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

REQUESTS = Counter("myqueue_requests_total", "Requests answered, by route, method and status. Many 5xx: see the node's log.",
                   ["route", "method", "status"])
REQUEST_SECONDS = Histogram("myqueue_request_seconds", "Time to answer a request, by route; long polls wait on purpose.", ["route"], buckets=_LATENCY)
RECORDS_APPENDED = Counter("myqueue_records_appended_total", "Records appended and committed to disk.")
BYTES_APPENDED = Counter("myqueue_bytes_appended_total", "Bytes of batches appended and committed to disk.")
RECORDS_READ = Counter("myqueue_records_read_total", "Records handed to readers, in whole blocks.")
APPEND_GROUP = Histogram("myqueue_append_group_requests", "Requests written by one commit. Near 1 under load: the disk is not the limit.",
                         buckets=(1, 2, 4, 8, 16, 32, 64, 128))
COMMIT_SECONDS = Histogram("myqueue_commit_seconds", "Time of one append transaction, with its commit. Above 0.1: look at the disk.",
                           buckets=_LATENCY)
QUEUED_BYTES = Gauge("myqueue_append_queued_bytes", "Bytes waiting to be written. At the bound, producers get 503: the disk is too slow.",
                     multiprocess_mode="livesum")
LONG_POLLS = Gauge("myqueue_long_polls", "Reads that wait for data. Near the thread count: raise --threads.", multiprocess_mode="livesum")
COMMANDS = Counter("myqueue_commands_total", "Metadata commands applied, by type and result.", ["type", "result"])
APPLIED_INDEX = Gauge("myqueue_applied_index", "Metadata index applied on this manager. Behind the others: it is catching up.",
                      multiprocess_mode="max")
ACTORS = Gauge("myqueue_actors", "Brokers, managers, producers and consumers by state. dead: see GET /health.",
               ["type", "state"], multiprocess_mode="max")
PARTITION_ELECTIONS = Counter("myqueue_partition_elections_total", "Elections of partitions held by the write manager, by result. Many no_leader: a "
                              "majority of some partition's replicas does not answer.", ["result"])
UPSTREAM_ERRORS = Counter("myqueue_upstream_errors_total", "Requests that a balancer could not pass on, by component.", ["component"])


def exposition() -> tuple[bytes, str]:
    """All series as text, summed over the node's worker processes, and the content type."""
    registry: CollectorRegistry = REGISTRY
    if values.ValueClass is not values.MutexValue:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
    return generate_latest(registry), CONTENT_TYPE_LATEST
