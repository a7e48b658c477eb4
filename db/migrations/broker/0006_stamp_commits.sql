-- Who committed a consumer's offset last, and with which number of its own: an earlier commit of the same client that arrives late changes nothing.

ALTER TABLE consumer_offset
    ADD committer bigint NOT NULL DEFAULT 0,            -- 0: nobody has stamped a commit yet
    ADD sequence bigint NOT NULL DEFAULT 0;
