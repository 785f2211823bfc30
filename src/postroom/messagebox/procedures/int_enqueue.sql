-- Write rows into the work queues of their hosts, unclaimed and under their old numbers. Returns how many.
-- The rows of a new message are written by evaluate_subscriptions, and by COPY.
CREATE OR REPLACE FUNCTION messagebox.int_enqueue(p_rows messagebox.queue_row[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    written bigint;
BEGIN
    INSERT INTO work_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority,
                            task, attempt, primary_attempts, properties, enqueued_at, counted_in)
    SELECT r.seq, r.host_id, r.message_id, r.subscription_id, r.service_class, r.service_id, r.instance_id, r.priority,
           r.task, r.attempt, r.primary_attempts, r.properties, r.enqueued_at, r.counted_in
      FROM unnest(p_rows) r ORDER BY r.seq;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;
