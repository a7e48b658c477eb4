-- What a replica has promised outlives it: a leader of before would else find an empty replica that believes it, if the partition comes here again.

CREATE TABLE kept_promise (
    topic_id bigint NOT NULL,
    partition int NOT NULL,
    promised_epoch bigint NOT NULL,
    PRIMARY KEY (topic_id, partition)
);
