-- Trims: an entry of kind 3 says below which offset nothing of a partition is served any more. It is folded as offset commits are.

ALTER TABLE partition_commit ADD trim_offset bigint NOT NULL DEFAULT 0;     -- folded up to applied_lsn, like consumer_offset

-- The rules on kinds are widened, on the parent and so on every segment. What is stored satisfied the narrower ones: nothing is read for it.
ALTER TABLE log_entry DROP CONSTRAINT log_entry_kind_check, DROP CONSTRAINT log_entry_check2;
DO $$
DECLARE
    child regclass;
BEGIN
    FOR child IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'log_entry'::regclass LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT log_entry_kind_check, DROP CONSTRAINT log_entry_check2', child);
    END LOOP;
END $$;
ALTER TABLE log_entry
    ADD CONSTRAINT log_entry_kind_check CHECK (kind BETWEEN 0 AND 3) NOT VALID,                 -- 3: a trim
    ADD CONSTRAINT log_entry_body_check CHECK ((kind IN (2, 3)) = (body IS NOT NULL)) NOT VALID;

-- As before, without what is trimmed.
CREATE OR REPLACE VIEW messages AS
SELECT t.name AS topic, e.partition, e.base_offset + r.place - 1 AS msg_offset, r.key, r.value, r.headers,
       to_timestamp(coalesce(r.client_time, e.append_time) / 1e6) AS ts, to_timestamp(e.append_time / 1e6) AS append_time, e.epoch,
       e.topic_id
FROM log_entry e
JOIN topic t USING (topic_id)
JOIN partition_commit c USING (topic_id, partition)
CROSS JOIN LATERAL unnest(e.keys, e."values", e.headers, e.timestamps) WITH ORDINALITY AS r (key, value, headers, client_time, place)
WHERE e.kind = 1 AND e.lsn < c.commit_lsn AND e.base_offset + e.record_count > c.trim_offset AND e.base_offset + r.place - 1 >= c.trim_offset;

-- As before, from the trim offset on.
CREATE OR REPLACE FUNCTION messages_between(of_topic bigint, of_partition int, from_offset bigint, to_offset bigint)
RETURNS TABLE (msg_offset bigint, key bytea, value bytea, headers bytea, client_time bigint, append_time bigint, epoch bigint)
LANGUAGE plpgsql STABLE ROWS 10000 AS $$
DECLARE
    committed bigint;
    trimmed bigint;
    first bigint;
    child record;
BEGIN
    SELECT commit_offset, trim_offset INTO committed, trimmed FROM partition_commit WHERE topic_id = of_topic AND partition = of_partition;
    to_offset := least(to_offset, committed);
    from_offset := greatest(from_offset, trimmed);
    IF to_offset IS NULL OR from_offset >= to_offset THEN
        RETURN;
    END IF;
    FOR child IN
        SELECT s.segment_id, s.first_offset FROM segment_start s
        WHERE s.topic_id = of_topic AND s.partition = of_partition AND s.first_offset < to_offset
          AND s.segment_id >= coalesce((SELECT max(p.segment_id) FROM segment_start p WHERE p.topic_id = of_topic
                                        AND p.partition = of_partition AND p.first_offset <= from_offset), 0)
        ORDER BY s.segment_id
    LOOP
        EXECUTE format('SELECT base_offset FROM %I WHERE topic_id = $1 AND partition = $2 AND kind = 1 AND base_offset <= $3
                        ORDER BY base_offset DESC LIMIT 1', 'log_segment_' || child.segment_id)
            INTO first USING of_topic, of_partition, from_offset;
        RETURN QUERY EXECUTE format(
            'SELECT e.base_offset + r.place - 1, r.key, r.value, r.headers, r.client_time, e.append_time, e.epoch
             FROM (SELECT * FROM %I WHERE topic_id = $1 AND partition = $2 AND kind = 1 AND base_offset >= $3 AND base_offset < $5
                   ORDER BY base_offset) e
             CROSS JOIN LATERAL unnest(e.keys, e."values", e.headers, e.timestamps) WITH ORDINALITY AS r (key, value, headers, client_time, place)
             WHERE e.base_offset + r.place - 1 >= $4 AND e.base_offset + r.place - 1 < $5', 'log_segment_' || child.segment_id)
            USING of_topic, of_partition, coalesce(first, from_offset), from_offset, to_offset;
    END LOOP;
END $$;
