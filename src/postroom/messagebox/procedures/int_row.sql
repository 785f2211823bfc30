-- Return a row of a queue as a queue_row. For rows of the partitioned tables PostgreSQL inlines it. The row of a
-- partition it would convert to one of the table once for each column, which takes five times as long.
CREATE OR REPLACE FUNCTION messagebox.int_row(q messagebox.work_queue) RETURNS messagebox.queue_row
LANGUAGE sql STABLE AS $$
    SELECT ROW(q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.instance_id,
               q.priority, q.task, q.attempt, q.primary_attempts, q.properties, q.enqueued_at, q.counted_in,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::messagebox.queue_row;
$$;
CREATE OR REPLACE FUNCTION messagebox.int_row(q messagebox.scheduled_queue) RETURNS messagebox.queue_row
LANGUAGE sql STABLE AS $$
    SELECT ROW(q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.instance_id,
               q.priority, q.task, q.attempt, q.primary_attempts, q.properties, q.enqueued_at, q.counted_in,
               q.valid_from, q.state, q.paused, q.error_code, q.error_description, NULL, NULL, NULL, NULL,
               NULL)::messagebox.queue_row;
$$;
CREATE OR REPLACE FUNCTION messagebox.int_row(q messagebox.suspended_queue) RETURNS messagebox.queue_row
LANGUAGE sql STABLE AS $$
    SELECT ROW(q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.instance_id,
               q.priority, q.task, q.attempt, NULL, q.properties, q.enqueued_at, q.counted_in, q.valid_from, NULL, NULL,
               q.error_code, q.error_description, q.suspended_at, q.resumable, q.cause, q.adapter,
               q.uri)::messagebox.queue_row;
$$;
