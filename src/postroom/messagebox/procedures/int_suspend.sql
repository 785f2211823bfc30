-- Write rows into the suspended queues of their hosts, under their old numbers. Returns how many. int_fail gives a row
-- its error. The rows of a new message are written by evaluate_subscriptions, and by COPY.
CREATE OR REPLACE FUNCTION messagebox.int_suspend(p_rows messagebox.queue_row[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    written bigint;
BEGIN
    INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                 priority, task, attempt, properties, enqueued_at, counted_in, valid_from, suspended_at,
                                 resumable, cause, error_code, error_description, adapter, uri)
    SELECT r.seq, r.host_id, r.message_id, r.subscription_id, r.service_class, r.service_id, r.instance_id, r.priority,
           r.task, r.attempt, r.properties, r.enqueued_at, r.counted_in, r.valid_from, r.suspended_at, r.resumable,
           r.cause, r.error_code, r.error_description, r.adapter, r.uri
      FROM unnest(p_rows) r ORDER BY r.seq;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;
