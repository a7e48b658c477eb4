"""Bounds of the native face: what the servers hold to and the OpenAPI document tells."""

from __future__ import annotations

INT32_MAX = 2**31 - 1
PORT_MAX = 65_535

# --- a read ---
WAIT_SECONDS_MAX = 30.0  # of a long poll; a longer wish is cut to it
BYTES_DEFAULT, BYTES_MAX = 1 << 20, 8 << 20
RECORDS_DEFAULT, RECORDS_MAX = 1_000, 65_536

# --- metadata ---
PARTITIONS_MAX = 10_000  # of one topic
FACTOR_MAX = 7  # replicas of a partition
TOPICS_MAX = 1_000  # in one registration
IDS_MAX = 10_000  # of producers, or of consumers, in one heartbeat
URL_MAX = 300

# --- consumer groups ---
HEARTBEATS_A_SESSION = 6
# So long before its session ends a silent member is taken for gone, and hands out nothing any more: what was heard of it becomes known, the
# command is committed, and its partitions are another's, all within the session.
NOTICE_SECONDS = 2.0
