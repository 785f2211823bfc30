-- Write rows into the scheduled queues of their hosts, under their old numbers. Returns how many. A row without a state
-- waits for a retry.
CREATE OR REPLACE FUNCTION messagebox.int_schedule(p_rows messagebox.queue_row[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    written bigint;
BEGIN
    INSERT INTO scheduled_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                 priority, task, attempt, primary_attempts, properties, enqueued_at, counted_in,
                                 valid_from, state, paused, error_code, error_description)
    SELECT r.seq, r.host_id, r.message_id, r.subscription_id, r.service_class, r.service_id, r.instance_id, r.priority,
           r.task, r.attempt, r.primary_attempts, r.properties, r.enqueued_at, r.counted_in, r.valid_from,
           coalesce(r.state, 'waiting to retry'), coalesce(r.paused, false), r.error_code, r.error_description
      FROM unnest(p_rows) r ORDER BY r.seq;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;
