-- What a consumer group's members had in their hands when they ended without a word, so that a message which ends them is found.

ALTER TABLE consumer_offset
    ADD handed_end bigint NOT NULL DEFAULT 0,           -- messages below, from next_offset on, may be in a member's hands; 0: nobody has said so
    ADD deaths bigint NOT NULL DEFAULT 0;               -- members that ended with the message at next_offset alone in their hands
