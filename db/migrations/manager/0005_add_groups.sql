-- Consumer groups: who is in them and which partitions each member reads. Written by apply only; the members' heartbeats are soft state.

CREATE TABLE consumer_group (
    group_id bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    generation bigint NOT NULL,                         -- rises with every change of its members and of what they own
    strategy text NOT NULL,
    start text NOT NULL CHECK (start IN ('earliest', 'latest')),
    created_at bigint NOT NULL                          -- microseconds since 1970, by the proposer's clock
);

CREATE TABLE group_member (
    member_id bigint PRIMARY KEY,
    group_id bigint NOT NULL REFERENCES consumer_group ON DELETE CASCADE,
    instance_id text NOT NULL,
    topics jsonb NOT NULL,                              -- names
    session_timeout_ms bigint NOT NULL,
    wanted jsonb NOT NULL,                              -- ["topic_id/partition", …]: what it is to read
    owned jsonb NOT NULL,                               -- {"topic_id/partition": the generation in which it got it}
    created_at bigint NOT NULL,
    UNIQUE (group_id, instance_id)
);

ALTER TABLE heartbeat DROP CONSTRAINT heartbeat_type_check;
ALTER TABLE heartbeat ADD CONSTRAINT heartbeat_type_check CHECK (type IN ('broker', 'manager', 'producer', 'consumer', 'group_member'));
