-- Record that all messages of a batch of this host are written: the next batch can be opened, and tasks can no longer
-- remove messages from this one. Returns how many messages it has, or null, and changes nothing, if it was taken over.
-- Indexes: sink_batches' primary key, work_queue_claimed. Locks: the batch, until commit. It waits for tasks that
-- remove messages.
CREATE OR REPLACE FUNCTION messagebox.set_sink_batch_written___HOST__(p_batch_id uuid, p_attempt integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    UPDATE sink_batches SET written = true
     WHERE batch_id = p_batch_id AND attempt = p_attempt AND host_id = __HOST_ID__;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT count(*) FROM __HOST___q q WHERE q.claim_id = p_batch_id);
END $$;
