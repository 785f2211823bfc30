-- Delete the attempts of messages of a batch of this host: the task that processed them is alive after it. The commit
-- does not wait for the disk.
-- Index: primary keys of sink_attempts and sink_batches.
CREATE OR REPLACE FUNCTION messagebox.clear_sink_attempts___HOST__(p_batch_id uuid, p_seqs bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM sink_attempts a USING sink_batches b
     WHERE a.batch_id = p_batch_id AND a.seq = ANY (p_seqs) AND b.batch_id = a.batch_id AND b.host_id = __HOST_ID__;
END $$;
