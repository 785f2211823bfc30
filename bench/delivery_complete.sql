-- Deletes the rows of a claim, and their messages and parts, whose only references they were, as
-- complete_messages_<host> does. Used by the bare loop.
WITH done AS (
    DELETE FROM default_q WHERE claim_id = %s AND seq = ANY (%s::bigint[]) RETURNING message_id, counted_in
), messages AS (
    DELETE FROM spool s USING done d
     WHERE s.message_id = d.message_id AND s.counted_in = d.counted_in AND s.only_reference
    RETURNING s.part_ids, s.counted_in
)
DELETE FROM parts p USING (SELECT unnest(m.part_ids) AS part_id, m.counted_in FROM messages m) m
 WHERE p.part_id = m.part_id AND p.counted_in = m.counted_in AND p.only_reference
