-- Count the references of messages and of their parts in the ref-count logs from now on, if their rows count the only
-- one. Called before a reference to a stored message or part is added, in the same transaction, and before a reference
-- to it is released. So no row that counts its only reference has a second one.
-- Indexes: primary keys of spool and parts. Locks: the changed rows. A release that would
-- delete one waits, and then leaves it.
CREATE OR REPLACE FUNCTION messagebox.int_count_in_logs(p_message_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    logged record;
BEGIN
    WITH messages AS (
        UPDATE spool SET only_reference = false WHERE message_id = ANY (p_message_ids) AND only_reference
        RETURNING message_id, part_ids, counted_in
    ), parts AS (
        UPDATE parts p SET only_reference = false
          FROM (SELECT unnest(m.part_ids) AS part_id FROM messages m) m
         WHERE p.part_id = m.part_id AND p.only_reference
        RETURNING p.part_id, p.counted_in
    )
    SELECT (SELECT array_agg(m.message_id) FROM messages m) AS messages,
           (SELECT array_agg(m.counted_in) FROM messages m) AS message_counts,
           array_agg(p.part_id) AS parts, array_agg(p.counted_in) AS part_counts
      INTO logged FROM parts p;
    IF logged.messages IS NOT NULL THEN
        PERFORM int_log_references(1, logged.messages, logged.parts, logged.message_counts, logged.part_counts);
    END IF;
END $$;
