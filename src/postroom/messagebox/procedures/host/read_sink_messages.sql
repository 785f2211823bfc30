-- Return the messages of read_sink_rows, which has the parameters, in the form of dequeue_messages, and the time of
-- publication. The outer joins start with their numbers, and find the rows by index.
-- Indexes: work_queue_claimed, spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_sink_messages___HOST__(
    p_batch_id uuid, p_attempt integer, p_first bigint, p_last bigint, p_limit integer, p_bytes bigint
) RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task text,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, published_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT 0::bigint, q.seq, q.message_id, uuid_send(q.service_id), q.instance_id, q.task::text, q.attempt, m.*,
           n.published_at
      FROM read_sink_rows___HOST__(p_batch_id, p_attempt, p_first, p_last, p_limit, p_bytes, false) r
      CROSS JOIN unnest(r.seqs, r.published_at) AS n (seq, published_at)
      LEFT JOIN __HOST___q q ON q.claim_id = p_batch_id AND q.seq = n.seq
      LEFT JOIN LATERAL read_content(q.message_id) m ON true
     ORDER BY q.seq;
END $$;
