-- A manager's database: the WAL (the Raft log), Raft's own state, and the metadata that only apply writes. See db/DESIGN.md.

CREATE TABLE raft_state (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    cluster_id text,                                    -- NULL until the first leader's first command was applied
    node_id bigint,                                     -- NULL until the first start
    disk_id uuid NOT NULL DEFAULT gen_random_uuid(),    -- made with the database: another disk is another identity
    life bigint NOT NULL DEFAULT 0,
    current_term bigint NOT NULL DEFAULT 0,
    voted_for bigint,
    commit_index bigint NOT NULL DEFAULT 0,
    applied_index bigint NOT NULL DEFAULT 0,
    snapshot_index bigint NOT NULL DEFAULT 0,           -- the WAL holds what is above it
    snapshot_term bigint NOT NULL DEFAULT 0,
    snapshot_chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    CHECK (snapshot_index <= applied_index AND applied_index <= commit_index)
) WITH (fillfactor = 40);
INSERT INTO raft_state DEFAULT VALUES;

CREATE TABLE wal (
    index bigint PRIMARY KEY CHECK (index > 0),
    term bigint NOT NULL,
    command jsonb NOT NULL,
    client_id text,
    client_seq bigint,
    chain bytea NOT NULL CHECK (octet_length(chain) = 32)
);

CREATE TABLE snapshot (
    index bigint PRIMARY KEY,
    term bigint NOT NULL,
    state jsonb NOT NULL,
    digest bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One command of a client is applied once: its last sequence and the answer it got.
CREATE TABLE client_session (
    client_id text PRIMARY KEY,
    last_seq bigint NOT NULL,
    reply jsonb NOT NULL,
    last_index bigint NOT NULL
);
CREATE INDEX client_session_age ON client_session (last_index);

-- --- metadata: written by apply only ---

CREATE TABLE id_counter (kind text PRIMARY KEY, last_id bigint NOT NULL);

CREATE TABLE member (
    node_id bigint PRIMARY KEY,
    url text NOT NULL,
    disk_id uuid,
    voter boolean NOT NULL
);

CREATE TABLE broker (
    broker_id bigint PRIMARY KEY,
    disk_id uuid NOT NULL,
    host text NOT NULL,
    port int NOT NULL,
    status text NOT NULL CHECK (status IN ('ACTIVE', 'DRAINING', 'REMOVED')),
    database jsonb NOT NULL                             -- where Spark reads: host, port, name, user; never a password
);

CREATE TABLE topic (
    topic_id bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    replication_factor int NOT NULL,
    config jsonb NOT NULL,
    created_at bigint NOT NULL                          -- microseconds since 1970, by the proposer's clock
);

CREATE TABLE partition (
    topic_id bigint NOT NULL REFERENCES topic ON DELETE CASCADE,
    partition int NOT NULL,
    replication_factor int NOT NULL,
    epoch bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('ELECTING', 'ACTIVE')),
    leader bigint,
    voters jsonb NOT NULL,                              -- {broker_id: disk_id | null}
    learners jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (topic_id, partition)
);

CREATE TABLE producer (
    producer_id bigint NOT NULL,
    topic_id bigint NOT NULL REFERENCES topic ON DELETE CASCADE,
    created_at bigint NOT NULL,
    PRIMARY KEY (producer_id, topic_id)
);

CREATE TABLE consumer (
    consumer_id bigint NOT NULL,
    topic_id bigint NOT NULL REFERENCES topic ON DELETE CASCADE,
    start text NOT NULL CHECK (start IN ('earliest', 'latest')),
    created_at bigint NOT NULL,
    PRIMARY KEY (consumer_id, topic_id)
);

-- --- soft state: never in the log ---

CREATE TABLE heartbeat (
    type text NOT NULL CHECK (type IN ('broker', 'manager', 'producer', 'consumer')),
    actor_id bigint NOT NULL,
    last_updated_time timestamptz NOT NULL,
    PRIMARY KEY (type, actor_id)
) WITH (fillfactor = 50);
