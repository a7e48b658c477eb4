-- Replicas: who gets a partition's log without counting, and how many entries of a log follow a border in its epoch.

ALTER TABLE partition_state ADD learners bigint[] NOT NULL DEFAULT '{}';    -- brokers that the leader sends the log to beside the voters
