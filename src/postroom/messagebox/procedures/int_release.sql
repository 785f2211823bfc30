-- Release references of messages and of their parts. A message whose row counts its only reference is deleted, and so is
-- such a part. For the others, -1 is appended to the active ref-count logs, to the counts of the transactions that
-- counted the references. Called only with rows that the calling statement has just deleted from a queue (DELETE ...
-- RETURNING), so that nothing is released twice.
-- Who adds a reference has changed the row before, so that it counts in the logs (int_count_in_logs). The DELETE waits
-- for that transaction and then leaves the row.
-- Indexes: primary keys of spool and parts, once for each id, whatever statistics there are: those of empty tables would
-- have them read whole. NOT IN is hashed, also without joins that are.
CREATE OR REPLACE FUNCTION messagebox.int_release(p_message_ids uuid[], p_counted_in xid8[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    deleted uuid[];
    deleted_parts uuid[];
    messages uuid[];
    message_counts xid8[];
    released_parts uuid[];
    part_counts xid8[];
    others record;
BEGIN
    WITH done AS (
        DELETE FROM spool s USING unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)
         WHERE s.message_id = r.message_id AND s.counted_in = r.counted_in AND s.only_reference
        RETURNING s.message_id, s.part_ids, s.counted_in
    )
    SELECT (SELECT array_agg(d.message_id) FROM done d), array_agg(p.part_id), array_agg(p.counted_in)
      INTO deleted, released_parts, part_counts
      FROM (SELECT unnest(d.part_ids) AS part_id, d.counted_in FROM done d) p;
    IF cardinality(deleted) < cardinality(p_message_ids) OR deleted IS NULL THEN
        SELECT array_agg(r.message_id), array_agg(r.counted_in) INTO messages, message_counts
          FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in)
         WHERE r.message_id NOT IN (SELECT unnest(deleted));
        SELECT array_agg(p.part_id) AS parts, array_agg(p.counted_in) AS counts INTO others
          FROM (SELECT unnest(s.part_ids) AS part_id, r.counted_in
                  FROM unnest(messages, message_counts) AS r (message_id, counted_in)
                  JOIN spool s USING (message_id)) p;
        released_parts := released_parts || others.parts;
        part_counts := part_counts || others.counts;
    END IF;
    WITH done AS (
        DELETE FROM parts p USING unnest(released_parts, part_counts) AS r (part_id, counted_in)
         WHERE p.part_id = r.part_id AND p.counted_in = r.counted_in AND p.only_reference
        RETURNING p.part_id
    )
    SELECT array_agg(d.part_id) INTO deleted_parts FROM done d;
    IF cardinality(deleted_parts) < cardinality(released_parts) OR deleted_parts IS NULL THEN
        SELECT array_agg(r.part_id), array_agg(r.counted_in) INTO released_parts, part_counts
          FROM unnest(released_parts, part_counts) AS r (part_id, counted_in)
         WHERE r.part_id NOT IN (SELECT unnest(deleted_parts));
    ELSIF messages IS NULL THEN
        RETURN;
    ELSE
        released_parts := NULL;
        part_counts := NULL;
    END IF;
    PERFORM int_log_references(-1, messages, released_parts, message_counts, part_counts);
END $$;
