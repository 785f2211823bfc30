-- Return messages of a batch by number, with context and body part, in the form of dequeue_messages, and the time of
-- publication. Messages that have left the batch are skipped. Raises PR410 if the batch was taken over.
-- Indexes: work_queue_claimed, spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_sink_messages___HOST__(p_batch_id uuid, p_attempt integer, p_seqs bigint[])
RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task smallint,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, published_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM 1 FROM sink_batches b
      WHERE b.batch_id = p_batch_id AND b.attempt = p_attempt AND b.host_id = __HOST_ID__;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % of batch % is over', p_attempt, p_batch_id USING ERRCODE = 'PR410';
    END IF;
    RETURN QUERY
    SELECT 0::bigint, q.seq, q.message_id, uuid_send(q.service_id), q.instance_id, q.task, q.attempt, s.context::text,
           cardinality(s.part_ids), s.body_part_id, s.body_part_name, p.content_type, p.charset, p.body,
           coalesce(s.originator_sid, s.published_by), coalesce(s.originator_pid, 'Guest'), s.published_at
      FROM __HOST___q q
      LEFT JOIN spool s ON s.message_id = q.message_id
      LEFT JOIN parts p ON p.part_id = s.body_part_id
     WHERE q.claim_id = p_batch_id AND q.seq = ANY (p_seqs)
     ORDER BY q.priority, q.seq;
END $$;
