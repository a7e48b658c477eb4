"""What is measured: each workload makes its cases from a stage and the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.bench.plan import Case, Options
from tests.bench.stage import Stage

from . import consume, growth, latency, memory, produce, replicated, single

MAKERS: Mapping[str, Callable[[Stage, Options], Sequence[Case]]] = {
    "produce": produce.cases, "consume": consume.cases, "single": single.cases, "latency": latency.cases,
    "replicated": replicated.cases, "growth": growth.cases, "memory": memory.cases}
