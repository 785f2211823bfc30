-- Delete the messages whose last reference the caller has released, and their parts, with their counts, not by
-- folds and cleanups. Returns the references that are left for int_release. Called only with rows that the caller has
-- deleted from a queue, in an earlier statement of the same transaction.
-- A reference is the last one if the only total of the message is one, counted by the transaction of the reference, and
-- no log has a row of the message. The same holds for a part. Totals and logs are read by one statement, so in one
-- snapshot: a fold is seen as a whole or not at all. Nobody can add a reference meanwhile, because whoever adds one to
-- a stored message or part deletes or locks a queue row that refers to it in the same transaction: that row is counted
-- in the snapshot, or is the one that the caller has deleted. For the same reason no fold changes these totals. So the
-- lock of the jobs is not needed.
-- Indexes: primary keys of both totals, spool, parts and fragments, by an array of ids; everything else is hashed or
-- sorted, also the logs, which are read whole, in memory. Nested loops are off because of the logs.
CREATE OR REPLACE FUNCTION messagebox.int_delete_released(
    p_message_ids uuid[], p_counted_in xid8[], OUT other_messages uuid[], OUT other_counts xid8[]
) LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp
SET work_mem = '64MB' SET enable_nestloop = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    deleted uuid[];
    shared_parts uuid[];
    shared_counts xid8[];
BEGIN
    WITH counted AS MATERIALIZED (
        SELECT r.message_id, r.counted_in, t.place
          FROM (SELECT t.message_id, min(t.counted_in) AS counted_in, min(t.ctid) AS place
                  FROM message_ref_count_log_totals t WHERE t.message_id = ANY (p_message_ids)
                 GROUP BY t.message_id HAVING count(*) = 1 AND min(t.total) = 1) t
          JOIN unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)
            ON r.message_id = t.message_id AND r.counted_in = t.counted_in
    ), messages AS MATERIALIZED (
        SELECT c.* FROM counted c
         WHERE NOT EXISTS (SELECT 1 FROM message_ref_count_log_1 l
                            WHERE l.message_id = c.message_id AND EXISTS (SELECT 1 FROM counted))
           AND NOT EXISTS (SELECT 1 FROM message_ref_count_log_2 l
                            WHERE l.message_id = c.message_id AND EXISTS (SELECT 1 FROM counted))
    ), deleted_totals AS (
        DELETE FROM message_ref_count_log_totals WHERE ctid = ANY (ARRAY(SELECT m.place FROM messages m))
    ), deleted_messages AS (
        DELETE FROM spool s WHERE s.message_id = ANY (ARRAY(SELECT m.message_id FROM messages m))
        RETURNING s.message_id, s.part_ids
    ), message_parts AS MATERIALIZED (
        SELECT unnest(d.part_ids) AS part_id, m.counted_in FROM deleted_messages d JOIN messages m USING (message_id)
    ), counted_parts AS MATERIALIZED (
        SELECT r.part_id, r.counted_in, t.place
          FROM (SELECT t.part_id, min(t.counted_in) AS counted_in, min(t.ctid) AS place
                  FROM part_ref_count_log_totals t WHERE t.part_id = ANY (ARRAY(SELECT p.part_id FROM message_parts p))
                 GROUP BY t.part_id HAVING count(*) = 1 AND min(t.total) = 1) t
          JOIN message_parts r ON r.part_id = t.part_id AND r.counted_in = t.counted_in
    ), own_parts AS MATERIALIZED (
        SELECT c.* FROM counted_parts c
         WHERE NOT EXISTS (SELECT 1 FROM part_ref_count_log_1 l
                            WHERE l.part_id = c.part_id AND EXISTS (SELECT 1 FROM counted_parts))
           AND NOT EXISTS (SELECT 1 FROM part_ref_count_log_2 l
                            WHERE l.part_id = c.part_id AND EXISTS (SELECT 1 FROM counted_parts))
    ), deleted_part_totals AS (
        DELETE FROM part_ref_count_log_totals WHERE ctid = ANY (ARRAY(SELECT p.place FROM own_parts p))
    ), deleted_parts AS (
        DELETE FROM parts p WHERE p.part_id = ANY (ARRAY(SELECT o.part_id FROM own_parts o))
        RETURNING p.part_id, p.body IS NULL AS in_fragments
    ), deleted_fragments AS (
        DELETE FROM fragments WHERE part_id = ANY (ARRAY(SELECT p.part_id FROM deleted_parts p WHERE p.in_fragments))
    ), shared AS (
        SELECT part_id, counted_in FROM message_parts EXCEPT ALL SELECT part_id, counted_in FROM own_parts
    )
    SELECT (SELECT array_agg(m.message_id) FROM messages m), array_agg(s.part_id), array_agg(s.counted_in)
      INTO deleted, shared_parts, shared_counts
      FROM shared s WHERE (SELECT count(*) FROM message_parts) > (SELECT count(*) FROM own_parts);
    IF shared_parts IS NOT NULL THEN
        EXECUTE format('INSERT INTO part_ref_count_log_%s (part_id, delta, counted_in) SELECT r.part_id, -1, r.counted_in
                          FROM unnest($1, $2) AS r (part_id, counted_in)',
                       (SELECT active FROM active_ref_count_log WHERE kind = 'part'))
          USING shared_parts, shared_counts;
    END IF;
    IF deleted IS NULL THEN
        other_messages := p_message_ids;
        other_counts := p_counted_in;
    ELSIF cardinality(deleted) < cardinality(p_message_ids) THEN
        SELECT array_agg(r.message_id), array_agg(r.counted_in) INTO other_messages, other_counts
          FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)
         WHERE NOT EXISTS (SELECT 1 FROM unnest(deleted) AS d (message_id) WHERE d.message_id = r.message_id);
    END IF;
END $$;
