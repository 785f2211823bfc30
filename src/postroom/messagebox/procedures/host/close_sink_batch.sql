-- End a batch of this host. The caller completes, retries, suspends or releases its messages in the same transaction,
-- with the batch id as their claim. Returns false and changes nothing if the batch was taken over or has ended.
-- Index: sink_batches' primary key.
CREATE OR REPLACE FUNCTION messagebox.close_sink_batch___HOST__(p_batch_id uuid, p_attempt integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    DELETE FROM sink_batches WHERE batch_id = p_batch_id AND attempt = p_attempt AND host_id = __HOST_ID__;
    RETURN FOUND;
END $$;
