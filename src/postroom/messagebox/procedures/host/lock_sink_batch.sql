-- Lock a batch of this host, so that no process takes it over until the caller's transaction ends: the next attempt
-- then sees what the transaction did with a message of the batch. Raises PR410 if the batch was taken over before, or
-- is written.
-- Index: sink_batches' primary key. Locks: the batch, shared with other tasks, until commit.
CREATE OR REPLACE FUNCTION messagebox.lock_sink_batch___HOST__(p_batch_id uuid, p_attempt integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM 1 FROM sink_batches b
      WHERE b.batch_id = p_batch_id AND b.attempt = p_attempt AND b.host_id = __HOST_ID__ AND NOT b.written
        FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % of batch % is over', p_attempt, p_batch_id USING ERRCODE = 'PR410';
    END IF;
END $$;
