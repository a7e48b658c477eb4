-- A broker's database: identity, partitions, the log, and what is folded from it. See db/DESIGN.md.

CREATE TABLE broker_identity (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    cluster_id text,                                    -- NULL until registered
    broker_id bigint,                                   -- NULL until registered
    disk_id uuid NOT NULL DEFAULT gen_random_uuid(),    -- made with the database: another disk is another identity
    life bigint NOT NULL DEFAULT 0                      -- raised with each acknowledged heartbeat; who shows a lower one is a restored copy
);
INSERT INTO broker_identity DEFAULT VALUES;

CREATE TABLE topic (
    topic_id bigint PRIMARY KEY,                        -- the topic's identity: a re-created topic has a new one
    name text NOT NULL,
    config jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX topic_name ON topic (name);

-- The head of a partition's log. Its row lock orders all appends; ends and chain change in the appending transaction.
-- Positions: the first lsn and offset are 0; every end is exclusive.
CREATE TABLE partition_state (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    promised_epoch bigint NOT NULL DEFAULT 0,
    leader_epoch bigint NOT NULL DEFAULT 0,             -- this replica leads while it equals promised_epoch and is above 0
    voters jsonb NOT NULL DEFAULT '{}',                 -- {broker_id: disk_id | null}
    replication_factor int NOT NULL DEFAULT 1,
    start_lsn bigint NOT NULL DEFAULT 0,
    start_offset bigint NOT NULL DEFAULT 0,
    start_epoch bigint NOT NULL DEFAULT 0,
    start_chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    end_lsn bigint NOT NULL DEFAULT 0,
    end_offset bigint NOT NULL DEFAULT 0,
    end_epoch bigint NOT NULL DEFAULT 0,
    end_chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    last_append_time bigint NOT NULL DEFAULT 0,         -- microseconds since 1970
    segment_id bigint,                                  -- where the next entry goes
    seeding_until bigint,                               -- while set, the replica counts for no majority and serves nothing
    fault text,                                         -- why this log is no longer served
    PRIMARY KEY (topic_id, partition),
    CHECK (start_lsn <= end_lsn AND start_offset <= end_offset),
    CHECK (leader_epoch <= promised_epoch),
    CHECK (octet_length(end_chain) = 32 AND octet_length(start_chain) = 32)
) WITH (fillfactor = 40);

-- Lower bounds, learnt again after a crash; apart from the head, so that acknowledgements do not wait for the next group's fsync.
CREATE TABLE partition_commit (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    commit_lsn bigint NOT NULL DEFAULT 0,
    commit_offset bigint NOT NULL DEFAULT 0,            -- the base_offset of the entry at commit_lsn
    applied_lsn bigint NOT NULL DEFAULT 0,              -- consumer_offset and producer_state are folded up to here
    PRIMARY KEY (topic_id, partition),
    CHECK (applied_lsn <= commit_lsn)
) WITH (fillfactor = 40);

CREATE TABLE replica_progress (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    epoch bigint NOT NULL,
    broker_id bigint NOT NULL,
    matched_lsn bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, broker_id)
) WITH (fillfactor = 40);

-- The parent of all segments; it holds no row itself. A block of records is a row, and so is a marker and an offset commit.
CREATE TABLE log_entry (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    lsn bigint NOT NULL,
    epoch bigint NOT NULL,
    kind smallint NOT NULL,                             -- 0 epoch marker, 1 records, 2 consumer-offset commit
    base_offset bigint NOT NULL,
    record_count int NOT NULL,
    append_time bigint NOT NULL,                        -- microseconds since 1970, never falling in a partition
    producer_id bigint NOT NULL,                        -- -1 without one
    producer_epoch int NOT NULL,
    producer_seq bigint NOT NULL,
    request_index int NOT NULL,                         -- place in its request, from 0
    request_count int NOT NULL,                         -- entries of its request: replication never splits one
    chain bytea NOT NULL,
    keys bytea[],
    "values" bytea[],
    headers bytea[],
    timestamps bigint[],
    body bytea,                                         -- an offset commit: canonical JSON
    PRIMARY KEY (topic_id, partition, lsn),
    CHECK (kind BETWEEN 0 AND 2),
    CHECK (record_count = coalesce(cardinality("values"), 0) AND (kind = 1) = (record_count > 0)),
    CHECK (coalesce(cardinality(keys), record_count) = record_count
       AND coalesce(cardinality(headers), record_count) = record_count
       AND coalesce(cardinality(timestamps), record_count) = record_count),
    CHECK ((kind = 2) = (body IS NOT NULL)),
    CHECK (request_index >= 0 AND request_index < request_count),
    CHECK (octet_length(chain) = 32)
);
CREATE UNIQUE INDEX log_entry_offset ON log_entry (topic_id, partition, base_offset) WHERE kind = 1;
ALTER TABLE log_entry ALTER keys SET STORAGE EXTERNAL, ALTER "values" SET STORAGE EXTERNAL,
    ALTER headers SET STORAGE EXTERNAL, ALTER timestamps SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;

-- A segment is one child table of log_entry, log_segment_<segment_id>, for one topic's entries on this broker.
CREATE TABLE segment (
    segment_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    topic_id bigint NOT NULL,
    state text NOT NULL DEFAULT 'spare' CHECK (state IN ('spare', 'open', 'sealed')),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX segment_topic ON segment (topic_id, segment_id);

-- Where each partition begins in each segment, so that a read goes straight to its child table.
CREATE TABLE segment_start (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    segment_id bigint NOT NULL REFERENCES segment ON DELETE CASCADE,
    first_lsn bigint NOT NULL,
    first_offset bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, segment_id)
);

CREATE TABLE consumer_offset (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    consumer text NOT NULL,                             -- '#7' for the registered consumer 7
    next_offset bigint NOT NULL,                        -- the first one not consumed
    generation bigint NOT NULL DEFAULT 0,
    lsn bigint NOT NULL,                                -- the entry that says so
    append_time bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, consumer)
) WITH (fillfactor = 50);

-- What a dequeue with a request_id handed out, so that it can be repeated; expires by append_time.
CREATE TABLE consumer_request (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    consumer text NOT NULL,
    request_id text NOT NULL,
    message_offset bigint NOT NULL,
    append_time bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, consumer, request_id)
);
CREATE INDEX consumer_request_age ON consumer_request (topic_id, partition, append_time);

CREATE TABLE producer_state (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    producer_id bigint NOT NULL,
    producer_epoch int NOT NULL,
    last_seq bigint NOT NULL,
    recent jsonb NOT NULL,                              -- the last requests: [[seq, base_offset, lsn, record_count, append_time], …], oldest first
    append_time bigint NOT NULL,
    PRIMARY KEY (topic_id, partition, producer_id)
) WITH (fillfactor = 50);

-- Make a segment's table and join it to the log. Done ahead of need: the transaction that fills it only flips a state.
CREATE FUNCTION create_segment(for_topic bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
    child text;
BEGIN
    INSERT INTO segment (topic_id) VALUES (for_topic) RETURNING segment_id INTO id;
    child := 'log_segment_' || id;
    EXECUTE format('CREATE TABLE %I (LIKE log_entry INCLUDING ALL, CHECK (topic_id = %s))
                    WITH (toast_tuple_target = 8160, autovacuum_analyze_scale_factor = 0.2)', child, for_topic);
    EXECUTE format('ALTER TABLE %I INHERIT log_entry', child);
    RETURN id;
END $$;

-- One row per committed message, for people. A range of offsets is read faster with messages_between.
CREATE VIEW messages AS
SELECT t.name AS topic, e.partition, e.base_offset + r.place - 1 AS msg_offset, r.key, r.value, r.headers,
       to_timestamp(coalesce(r.client_time, e.append_time) / 1e6) AS ts, to_timestamp(e.append_time / 1e6) AS append_time, e.epoch,
       e.topic_id
FROM log_entry e
JOIN topic t USING (topic_id)
JOIN partition_commit c USING (topic_id, partition)
CROSS JOIN LATERAL unnest(e.keys, e."values", e.headers, e.timestamps) WITH ORDINALITY AS r (key, value, headers, client_time, place)
WHERE e.kind = 1 AND e.lsn < c.commit_lsn;

-- Committed messages with from_offset <= msg_offset < to_offset, in order. Reads only the blocks that hold them: one
-- index probe for the block that holds from_offset, then a bounded index scan, in the segments concerned.
CREATE FUNCTION messages_between(of_topic bigint, of_partition int, from_offset bigint, to_offset bigint)
RETURNS TABLE (msg_offset bigint, key bytea, value bytea, headers bytea, client_time bigint, append_time bigint, epoch bigint)
LANGUAGE plpgsql STABLE ROWS 10000 AS $$
DECLARE
    committed bigint;
    first bigint;
    child record;
BEGIN
    SELECT commit_offset INTO committed FROM partition_commit WHERE topic_id = of_topic AND partition = of_partition;
    to_offset := least(to_offset, committed);
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

-- The elements of an array column as the chain digests them: an int32 length and the bytes, -1 for NULL.
CREATE FUNCTION chain_column(elements bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN elements IS NULL THEN int4send(-1) ELSE int4send(octet_length(elements)) || elements END
$$;

-- The chain after an entry, given the one before it: the same formula as myqueue/protocol/chain.py.
CREATE FUNCTION entry_chain(previous bytea, e log_entry) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(previous || int8send(e.topic_id) || int4send(e.partition) || int8send(e.lsn) || int8send(e.epoch) || int2send(e.kind)
        || int8send(e.base_offset) || int4send(e.record_count) || int8send(e.append_time)
        || int8send(e.producer_id) || int4send(e.producer_epoch) || int8send(e.producer_seq)
        || int4send(e.request_index) || int4send(e.request_count)
        || chain_column(substring(array_send(e.keys) FROM 21)) || chain_column(substring(array_send(e."values") FROM 21))
        || chain_column(substring(array_send(e.headers) FROM 21)) || chain_column(substring(array_send(e.timestamps) FROM 21))
        || chain_column(e.body))
$$;
