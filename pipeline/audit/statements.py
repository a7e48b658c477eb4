"""The audit's statements. Hashing is pushed down: PostgreSQL recomputes the chain and answers a row per stretch, not the messages."""

from __future__ import annotations

# Heads, commit positions, and the entries they speak of, in one snapshot.
HEADS = """
SELECT s.topic_id, s.partition, s.start_lsn, s.start_offset, s.start_epoch, s.start_chain,
       s.end_lsn, s.end_offset, s.end_epoch, s.end_chain, s.fault, c.commit_lsn, c.commit_offset,
       last.lsn AS last_lsn, last.base_offset + last.record_count AS last_end, last.epoch AS last_epoch, last.chain AS last_chain,
       entry_chain(coalesce(before.chain, s.start_chain), last.whole) AS last_computed, at_commit.base_offset AS base_at_commit
FROM partition_state s
LEFT JOIN partition_commit c USING (topic_id, partition)
LEFT JOIN LATERAL (SELECT e.lsn, e.base_offset, e.record_count, e.epoch, e.chain, e::log_entry AS whole FROM log_entry e
                   WHERE e.topic_id = s.topic_id AND e.partition = s.partition AND e.lsn >= s.start_lsn ORDER BY e.lsn DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT e.chain FROM log_entry e
                   WHERE e.topic_id = s.topic_id AND e.partition = s.partition AND e.lsn = last.lsn - 1) before ON true
LEFT JOIN LATERAL (SELECT e.base_offset FROM log_entry e
                   WHERE e.topic_id = s.topic_id AND e.partition = s.partition AND e.lsn = c.commit_lsn) at_commit ON true
WHERE s.topic_id = ANY(%(topic_ids)s)
ORDER BY s.topic_id, s.partition
"""

# The entry before a stretch: what its first entry must continue. Its chain is recomputed from the one before it.
BEFORE = """
SELECT e.lsn, e.base_offset + e.record_count AS end_offset, e.epoch, e.append_time, e.chain,
       entry_chain(CASE WHEN e.lsn = %(start_lsn)s THEN %(start_chain)s ELSE p.chain END, e::log_entry) AS computed
FROM log_entry e LEFT JOIN log_entry p ON p.topic_id = %(topic_id)s AND p.partition = %(partition)s AND p.lsn = %(from_lsn)s - 2
WHERE e.topic_id = %(topic_id)s AND e.partition = %(partition)s AND e.lsn = %(from_lsn)s - 1
"""

# The first offset stored at or above an lsn: how far the offsets of a gap at a stretch's end reach.
AFTER = """
SELECT base_offset FROM log_entry WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND lsn >= %(to_lsn)s ORDER BY lsn LIMIT 1
"""

# An entry as entry_chain wants it, of plain columns: they stay where they are stored until they are hashed. The row itself (e::log_entry)
# would carry all its bytes through each step.
_ROW = """ROW(topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time, producer_id, producer_epoch, producer_seq,
    request_index, request_count, chain, keys, "values", headers, timestamps, body)::log_entry"""

# Each entry beside the one before it, hashed once (OFFSET 0 keeps the expression from being repeated wherever its result is used).
# ``follows`` is asked only of a broken one: does it continue the *recomputed* chain of the entry before? Then that entry's stored chain is
# what was changed, and this one is whole. ``next_follows`` asks the same of the entry after a damaged one, wherever the stretch ends: what is
# found must not depend on where that is.
_JUDGED = """
WITH entry AS (
    SELECT e.*,
           lag(e.lsn, 1, %(before_lsn)s) OVER w AS before_lsn,
           lag(e.base_offset + e.record_count, 1, %(before_end)s) OVER w AS before_end,
           lag(e.epoch, 1, %(before_epoch)s) OVER w AS before_epoch,
           lag(e.append_time, 1, %(before_time)s) OVER w AS before_time,
           lag(e.chain, 1, %(before_chain)s) OVER w AS before_chain
    FROM log_segment_{segment:d} e
    WHERE e.topic_id = %(topic_id)s AND e.partition = %(partition)s AND e.lsn >= %(from_lsn)s AND e.lsn < %(to_lsn)s
    WINDOW w AS (ORDER BY e.lsn)
), recomputed AS (
    SELECT *, CASE WHEN lsn = before_lsn + 1 THEN entry_chain(before_chain, {row}) END AS computed FROM entry ORDER BY lsn OFFSET 0
), beside AS (
    SELECT *, lag(computed, 1, %(before_computed)s) OVER (ORDER BY lsn) AS before_computed FROM recomputed
), judged AS (
    SELECT lsn, base_offset, record_count, before_lsn, before_end, computed,
           lsn <> before_lsn + 1 AS is_gap,
           lsn = before_lsn + 1 AND base_offset <> before_end AS is_offset_gap,
           epoch < before_epoch OR append_time < before_time AS is_disordered,
           computed <> chain AS is_broken,
           CASE WHEN computed <> chain THEN entry_chain(before_computed, {row}) = chain END AS follows
    FROM beside
)
"""

_SUMMARY = """
SELECT count(*) AS entries, coalesce(sum(record_count), 0)::bigint AS records,
       coalesce(sum(record_count) FILTER (WHERE lsn < %(commit_lsn)s), 0)::bigint AS committed_records,
       max(lsn) AS last_lsn, max(base_offset + record_count) AS last_end,
       count(*) FILTER (WHERE is_gap OR is_offset_gap OR is_disordered OR (is_broken AND follows IS NOT TRUE)) AS damaged
FROM judged
"""

_DAMAGE = """
SELECT d.*, (SELECT entry_chain(d.computed, n::log_entry) = n.chain FROM log_entry n
             WHERE d.is_broken AND n.topic_id = %(topic_id)s AND n.partition = %(partition)s AND n.lsn = d.lsn + 1) AS next_follows
FROM (SELECT * FROM judged WHERE is_gap OR is_offset_gap OR is_disordered OR (is_broken AND follows IS NOT TRUE) ORDER BY lsn LIMIT %(limit)s) d
ORDER BY d.lsn
"""


def summary(segment: int) -> str:
    """One row over a stretch."""
    return _judged(segment) + _SUMMARY


def damage(segment: int) -> str:
    """The damaged entries of a stretch, asked only where the summary counts some."""
    return _judged(segment) + _DAMAGE


def _judged(segment: int) -> str:
    return _JUDGED.format(segment=segment, row=_ROW)
