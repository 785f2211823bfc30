-- Return what most sinks need of the messages of a batch whose numbers are between p_first and p_last, lowest first: at
-- most p_limit messages, and at most p_bytes of contexts and bodies, but at least one message. The caller continues
-- after the last one. Messages that have left the batch are skipped. Raises PR410 if the batch was taken over or is
-- written. is_simple is true if a message has no other part than a body in UTF-8, which is not in fragments.
-- The result is one row with the columns of the messages, because many rows take twice the CPU time to return and to
-- receive. Texts are joined, because PostgreSQL is slow to send an array of them: ids by commas, and contexts by line
-- breaks, which JSON escapes. Without p_with_body each body is null. Without messages each column is null.
-- Indexes: work_queue_claimed, spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_sink_rows___HOST__(
    p_batch_id uuid, p_attempt integer, p_first bigint, p_last bigint, p_limit integer, p_bytes bigint,
    p_with_body boolean
) RETURNS TABLE (
    seqs bigint[], is_simple boolean[], message_ids text, contexts text, bodies bytea[], published_at timestamptz[])
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 1
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM 1 FROM sink_batches b
      WHERE b.batch_id = p_batch_id AND b.attempt = p_attempt AND b.host_id = __HOST_ID__ AND NOT b.written;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % of batch % is over', p_attempt, p_batch_id USING ERRCODE = 'PR410';
    END IF;
    RETURN QUERY
    SELECT array_agg(m.seq), array_agg(m.is_simple), string_agg(m.message_id::text, ','),
           string_agg(coalesce(m.context::text, ''), E'\n'), array_agg(CASE WHEN p_with_body THEN m.body END),
           array_agg(m.published_at)
      FROM (SELECT q.seq, q.message_id, s.context, s.published_at, p.body, row_number() OVER by_number AS position,
                   cardinality(s.part_ids) = 1 AND p.body IS NOT NULL
                       AND coalesce(lower(p.charset), 'utf-8') = 'utf-8' AS is_simple,
                   -- Of integers: a sum of bigints is a numeric for every row.
                   sum(least(coalesce(p.size, 0) + coalesce(pg_column_size(s.context), 0), p_bytes + 1)::integer)
                       OVER by_number AS bytes
              FROM (SELECT c.seq, c.message_id FROM __HOST___q c
                     WHERE c.claim_id = p_batch_id AND c.seq BETWEEN p_first AND p_last
                     ORDER BY c.seq LIMIT p_limit) q
              LEFT JOIN spool s ON s.message_id = q.message_id
              LEFT JOIN parts p ON p.part_id = s.body_part_id
            WINDOW by_number AS (ORDER BY q.seq ROWS UNBOUNDED PRECEDING)
             ORDER BY q.seq) m
     WHERE m.bytes <= p_bytes OR m.position = 1;
END $$;
