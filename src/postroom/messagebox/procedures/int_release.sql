-- Release references of messages and of their parts. A message whose row counts its only reference is deleted, and so
-- is such a part. For the others, -1 is appended to the active ref-count logs, to the counts of the transactions that
-- counted the references. Called only with rows that the calling statement has just deleted from a queue (DELETE ...
-- RETURNING), so that nothing is released twice.
-- A transaction that adds a reference changes the row first, so that the logs count it (int_count_in_logs). The DELETE
-- waits for that transaction and then leaves the row.
-- Indexes: primary keys of spool and parts, by an array of ids. The settings enforce this: with the statistics of empty
-- tables PostgreSQL would read the tables whole. IN and NOT IN are hashed. IN is not evaluated if one transaction has
-- counted all references.
CREATE OR REPLACE FUNCTION messagebox.int_release(p_message_ids uuid[], p_counted_in xid8[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- The transaction that counted all of these references. Null if there are several.
    only_count xid8 := CASE WHEN p_counted_in[1] = ALL (p_counted_in) THEN p_counted_in[1] END;
    deleted_messages uuid[];
    kept_messages uuid[];
    kept_message_counts xid8[];
    -- The parts of all messages, later without those that were deleted; part_counts as p_counted_in.
    released_parts uuid[];
    part_counts xid8[];
    deleted_parts uuid[];
    parts_of_kept record;
BEGIN
    -- 1. Delete the messages without other references. Their parts are released.
    WITH deleted AS (
        DELETE FROM spool s
         WHERE s.message_id = ANY (p_message_ids) AND s.only_reference
           AND (s.counted_in = only_count OR (s.message_id, s.counted_in) IN (
                SELECT r.message_id, r.counted_in
                  FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)))
        RETURNING s.message_id, s.part_ids, s.counted_in
    )
    SELECT (SELECT array_agg(d.message_id) FROM deleted d), array_agg(p.part_id), array_agg(p.counted_in)
      INTO deleted_messages, released_parts, part_counts
      FROM (SELECT unnest(d.part_ids) AS part_id, d.counted_in FROM deleted d) p;

    -- 2. The other messages are kept: the logs count their references. Their parts are released, too.
    IF cardinality(deleted_messages) < cardinality(p_message_ids) OR deleted_messages IS NULL THEN
        SELECT array_agg(r.message_id), array_agg(r.counted_in) INTO kept_messages, kept_message_counts
          FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)
         WHERE r.message_id NOT IN (SELECT unnest(deleted_messages));
        SELECT array_agg(p.part_id) AS part_ids, array_agg(p.counted_in) AS counts INTO parts_of_kept
          FROM (SELECT unnest(s.part_ids) AS part_id, r.counted_in
                  FROM unnest(kept_messages, kept_message_counts) AS r (message_id, counted_in)
                  JOIN spool s USING (message_id)) p;
        released_parts := released_parts || parts_of_kept.part_ids;
        part_counts := part_counts || parts_of_kept.counts;
    END IF;

    -- 3. Delete the parts without other references.
    WITH deleted AS (
        DELETE FROM parts p
         WHERE p.part_id = ANY (released_parts) AND p.only_reference
           AND (p.counted_in = only_count OR (p.part_id, p.counted_in) IN (
                SELECT r.part_id, r.counted_in FROM unnest(released_parts, part_counts) AS r (part_id, counted_in)))
        RETURNING p.part_id
    )
    SELECT array_agg(d.part_id) INTO deleted_parts FROM deleted d;

    -- 4. Log the references of what is kept. Mostly nothing is.
    IF cardinality(deleted_parts) < cardinality(released_parts) OR deleted_parts IS NULL THEN
        SELECT array_agg(r.part_id), array_agg(r.counted_in) INTO released_parts, part_counts
          FROM unnest(released_parts, part_counts) AS r (part_id, counted_in)
         WHERE r.part_id NOT IN (SELECT unnest(deleted_parts));
    ELSIF kept_messages IS NULL THEN
        RETURN;
    ELSE
        released_parts := NULL;
        part_counts := NULL;
    END IF;
    PERFORM int_log_references(-1, kept_messages, released_parts, kept_message_counts, part_counts);
END $$;
