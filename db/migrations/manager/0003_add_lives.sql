-- What tells a copy of a manager's database from the database: life numbers and the server it is on; and requests for the one driver.

ALTER TABLE raft_state
    ADD COLUMN lives jsonb NOT NULL DEFAULT '{}',       -- {disk_id: the highest life number seen of it}
    ADD COLUMN system_identifier text,                  -- of the PostgreSQL server it was last used on: elsewhere it is another disk
    ADD COLUMN timeline bigint;

-- --- soft state ---

-- Membership changes that a worker asks of the driver's process, and its answers.
CREATE TABLE member_request (
    request_id uuid PRIMARY KEY,
    command jsonb NOT NULL,
    answer jsonb,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
