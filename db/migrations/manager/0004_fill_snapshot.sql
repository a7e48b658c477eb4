-- A snapshot is the canonical text of the metadata at one index (myqueue/protocol/metadata_state.py), with the chain of the WAL there. The table was empty until now.

ALTER TABLE snapshot
    ALTER COLUMN state TYPE text USING state::text,
    ADD COLUMN chain bytea NOT NULL CHECK (octet_length(chain) = 32),
    ADD CHECK (octet_length(digest) = 32);
