-- Deletes the rows of a claim and releases messages and parts, as complete_messages_<host> does. Used by the bare loop.
-- Both references go to log 1, because no job changes the active log during the measurement.
WITH done AS (
    DELETE FROM default_q WHERE claim_id = %s AND seq = ANY (%s::bigint[]) RETURNING message_id, counted_in
), messages AS (
    INSERT INTO message_ref_count_log_1 SELECT message_id, -1, counted_in FROM done
)
INSERT INTO part_ref_count_log_1
SELECT unnest(s.part_ids), -1, d.counted_in FROM done d JOIN spool s ON s.message_id = d.message_id
