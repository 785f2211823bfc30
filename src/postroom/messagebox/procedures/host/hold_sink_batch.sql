-- Keeps a batch of this host from being taken over until the caller's transaction ends: what it does with a message of the
-- batch is known to the next attempt then, or is not done. Refuses (PR410) when the batch was taken over before.
-- Index: sink_batches' primary key. Locks: the batch, shared with other tasks, until commit.
CREATE OR REPLACE FUNCTION messagebox.hold_sink_batch___HOST__(p_batch_id uuid, p_attempt integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM 1 FROM sink_batches b
      WHERE b.batch_id = p_batch_id AND b.attempt = p_attempt AND b.host_id = __HOST_ID__
        FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % of batch % is over', p_attempt, p_batch_id USING ERRCODE = 'PR410';
    END IF;
END $$;
