-- Take messages of a claim out of the work queue. Returns those that the claim still had, or null. The caller gives
-- them to int_schedule, int_suspend or int_finish.
-- Index: work_queue_claimed, which the settings of the callers enforce.
CREATE OR REPLACE FUNCTION messagebox.int_take_claimed___HOST__(p_claim_id uuid, p_seqs bigint[])
RETURNS messagebox.queue_row[]
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken queue_row[];
BEGIN
    -- The columns are listed, because PostgreSQL would convert the row of a partition for int_row.
    WITH done AS (
        DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING *
    )
    SELECT array_agg(ROW(seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority,
                         task, attempt, primary_attempts, properties, enqueued_at, counted_in, NULL, NULL, NULL, NULL,
                         NULL, NULL, NULL, NULL, NULL, NULL)::queue_row)
      INTO taken FROM done;
    RETURN taken;
END $$;
