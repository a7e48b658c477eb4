-- A manager leads while leader_term equals current_term and is above 0, so that a higher term ends a leadership for all its processes at once.

ALTER TABLE raft_state ADD COLUMN leader_term bigint NOT NULL DEFAULT 0;
