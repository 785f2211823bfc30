-- How many messages of a batch of this host have a note: tasks have begun with them, and were not heard of again. A message
-- that has left the batch does not count.
-- Indexes: sink_notes' primary key, work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.noted_sink_messages___HOST__(p_batch_id uuid) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT count(*)::integer
      FROM sink_notes n
     WHERE n.batch_id = p_batch_id
       AND EXISTS (SELECT 1 FROM __HOST___q q WHERE q.claim_id = n.batch_id AND q.seq = n.seq);
$$;
