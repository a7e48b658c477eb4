-- The chain after an entry: the same formula, spelled so that each column is fetched and copied once. An array of byteas in its
-- binary form, without the header, is just what the chain digests: of each an int32 length, -1 for NULL, and the bytes.
-- STABLE, as array_send is: only so does PostgreSQL put the expression in the function's place, and a row given as ROW(…) is never made.
CREATE OR REPLACE FUNCTION entry_chain(previous bytea, e log_entry) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT sha256((previous || int8send(e.topic_id) || int4send(e.partition) || int8send(e.lsn) || int8send(e.epoch) || int2send(e.kind)
        || int8send(e.base_offset) || int4send(e.record_count) || int8send(e.append_time)
        || int8send(e.producer_id) || int4send(e.producer_epoch) || int8send(e.producer_seq)
        || int4send(e.request_index) || int4send(e.request_count))
        || substring(array_send(ARRAY[
            substring(array_send(e.keys) FROM 21), substring(array_send(e."values") FROM 21), substring(array_send(e.headers) FROM 21),
            substring(array_send(e.timestamps) FROM 21), e.body]) FROM 21))
$$;
DROP FUNCTION chain_column(bytea);
