-- Move suspended instances back into the work queues of their hosts, under their old numbers. They are delivered even
-- if their send port is stopped (INS-08). An instance that was suspended while it waited for a service window waits for
-- it again, as dehydrated (INS-10). An orchestration continues from its last persistence point. Returns the resumed
-- instances. Instances that are not suspended or not resumable are skipped.
-- Indexes: suspended_queue (instance_id), orchestration_instances' primary key.
CREATE OR REPLACE FUNCTION messagebox.resume_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS TABLE (instance_id uuid, host_id smallint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH orchestrated AS (
        UPDATE orchestration_instances o
           SET suspended_at = NULL, error_code = NULL, error_description = NULL, process_deaths = 0,
               ready_seq = coalesce(o.ready_seq, nextval('messagebox.queue_sequence'))
         WHERE o.instance_id = ANY (p_instance_ids) AND o.suspended_at IS NOT NULL
        RETURNING o.instance_id, o.host_id
    ), resumed AS (
        DELETE FROM suspended_queue q WHERE q.instance_id = ANY (p_instance_ids) AND q.resumable RETURNING q.*
    ), ready AS (
        INSERT INTO work_queue AS w (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, attempt, properties, enqueued_at, counted_in)
        SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, 0,
               properties, p_now, counted_in
          FROM resumed WHERE (valid_from > p_now) IS NOT TRUE ORDER BY seq
        RETURNING w.instance_id, w.host_id
    ), waiting AS (
        INSERT INTO scheduled_queue AS w (seq, host_id, message_id, subscription_id, service_class, service_id,
                                          instance_id, priority, task, attempt, properties, enqueued_at, counted_in,
                                          valid_from)
        SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, 0,
               properties, p_now, counted_in, valid_from
          FROM resumed WHERE valid_from > p_now
        RETURNING w.instance_id, w.host_id
    )
    TABLE ready UNION ALL TABLE waiting UNION ALL TABLE orchestrated;
$$;
