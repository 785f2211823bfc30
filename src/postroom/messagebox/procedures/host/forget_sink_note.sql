-- The task that began with a message of a batch of this host is alive after it: its note goes. Nobody waits for the disk.
-- Index: sink_notes' and sink_batches' primary keys.
CREATE OR REPLACE FUNCTION messagebox.forget_sink_note___HOST__(p_batch_id uuid, p_seq bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM sink_notes n USING sink_batches b
     WHERE n.batch_id = p_batch_id AND n.seq = p_seq AND b.batch_id = n.batch_id AND b.host_id = __HOST_ID__;
END $$;
