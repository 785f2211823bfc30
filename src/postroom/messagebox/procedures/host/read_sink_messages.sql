-- Return the messages of a batch whose numbers are between p_first and p_last, lowest first, with context and body
-- part, in the form of dequeue_messages, and the time of publication: at most p_limit messages, and at most p_bytes of
-- contexts and bodies, but at least one message. The caller continues after the last one. Messages that have left the
-- batch are skipped. Raises PR410 if the batch was taken over or is written.
-- Indexes: work_queue_claimed, spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_sink_messages___HOST__(
    p_batch_id uuid, p_attempt integer, p_first bigint, p_last bigint, p_limit integer, p_bytes bigint
) RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task smallint,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, published_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
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
    SELECT 0::bigint, m.seq, m.message_id, uuid_send(m.service_id), m.instance_id, m.task, m.attempt, m.context::text,
           cardinality(m.part_ids), m.body_part_id, m.body_part_name, m.content_type, m.charset, m.body,
           coalesce(m.originator_sid, m.published_by), coalesce(m.originator_pid, 'Guest'), m.published_at
      FROM (SELECT q.seq, q.message_id, q.service_id, q.instance_id, q.task, q.attempt, s.context, s.part_ids,
                   s.body_part_id, s.body_part_name, s.originator_sid, s.originator_pid, s.published_by, s.published_at,
                   p.content_type, p.charset, p.body, row_number() OVER by_number AS position,
                   -- Of integers: a sum of bigints is a numeric for every row.
                   sum(least(coalesce(p.size, 0) + coalesce(pg_column_size(s.context), 0), p_bytes + 1)::integer)
                       OVER by_number AS bytes
              FROM (SELECT * FROM __HOST___q c
                     WHERE c.claim_id = p_batch_id AND c.seq BETWEEN p_first AND p_last
                     ORDER BY c.seq LIMIT p_limit) q
              LEFT JOIN spool s ON s.message_id = q.message_id
              LEFT JOIN parts p ON p.part_id = s.body_part_id
            WINDOW by_number AS (ORDER BY q.seq ROWS UNBOUNDED PRECEDING)) m
     WHERE m.bytes <= p_bytes OR m.position = 1
     ORDER BY m.seq;
END $$;
