-- Return how many messages of a batch of this host have attempts that did not finish: their workers may have died. A
-- message that has left the batch does not count.
-- Indexes: primary key of sink_attempts, work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.count_attempted_sink_messages___HOST__(p_batch_id uuid) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT count(*)::integer
      FROM sink_attempts a
     WHERE a.batch_id = p_batch_id
       AND EXISTS (SELECT 1 FROM __HOST___q q WHERE q.claim_id = a.batch_id AND q.seq = a.seq);
$$;
