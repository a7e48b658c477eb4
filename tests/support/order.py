"""In which order tests run where several processes run side by side, and which of them one process runs one after the other."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_FIRST = ("pipeline", "simulation", "repo")  # tiers that compute
WHOLE_CLUSTERS = ("conformance", "cluster")  # tiers that take the cores; between them comes what mostly waits
FEW_NODES = ("integration",)
LONGEST_FILE = "tests/cluster/test_campaign.py"  # minutes: begins at once
LAST_CLUSTER = 0.85  # of the way: the last cluster begins before that, for it may take long
WHOLE_TIERS = ("pipeline", "conformance")  # all tests of one share a Spark or a cluster
WHOLE_FILES = ("cluster", "integration")  # the tests of a file share nodes


def tier_of(nodeid: str) -> str:
    return nodeid.split("/")[1]


def scope_of(nodeid: str) -> str:
    """What names the tests that one process runs, one after the other."""
    tier = tier_of(nodeid)
    return tier if tier in WHOLE_TIERS else nodeid.split("::")[0] if tier in WHOLE_FILES else nodeid


def places(nodeids: Iterable[str]) -> dict[str, tuple[float, int]]:
    """Where each scope comes, by the order in which they are given: whole clusters are spread among the others, so that not all processes
    run one at the same time.
    """
    tiers = {scope_of(nodeid): tier_of(nodeid) for nodeid in nodeids}
    shares = dict.fromkeys(tiers, 0.0)
    for mixed, begin, end in ((WHOLE_CLUSTERS, 0.0, LAST_CLUSTER), (FEW_NODES, 0.01, 1.0)):
        scopes = sorted((scope for scope in tiers if tiers[scope] in mixed), key=lambda scope: (scope != LONGEST_FILE, mixed.index(tiers[scope])))
        shares |= {scope: begin + (end - begin) * place / len(scopes) for place, scope in enumerate(scopes)}
    shares |= {scope: float(LONGEST_FIRST.index(tier)) for scope, tier in tiers.items() if tier in LONGEST_FIRST}
    return {scope: (share, number) for number, (scope, share) in enumerate(shares.items())}
