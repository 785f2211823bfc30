-- Move the first message of an ordered send port aside: it is suspended as the instance p_new_id, under its number, so
-- that the messages after it are delivered. It keeps its error. Returns the new instance and the message. Returns
-- nothing if p_seq is not the number of the first message any more, or if a host is sending it.
-- Indexes: work_queue_ordered, scheduled_queue_instance, suspended_queue_instance.
-- Locks: advisory (7006, hash of the instance), so that no claim is made meanwhile, and the row of the message.
CREATE OR REPLACE FUNCTION messagebox.int_set_aside(p_instance_id uuid, p_seq bigint, p_new_id uuid)
RETURNS TABLE (instance_id uuid, message_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7006, uuid_hash(p_instance_id));
    IF p_seq IS DISTINCT FROM int_first_number(p_instance_id) THEN
        RETURN;
    END IF;
    RETURN QUERY WITH suspended AS (
        DELETE FROM suspended_queue q WHERE q.instance_id = p_instance_id AND q.seq = p_seq AND q.task = 6
        RETURNING q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.priority,
                  q.attempt, q.properties, q.enqueued_at, q.counted_in, q.suspended_at, q.resumable, q.cause,
                  q.error_code, q.error_description, q.adapter, q.uri
    ), waiting AS (
        DELETE FROM scheduled_queue q WHERE q.instance_id = p_instance_id AND q.seq = p_seq AND q.task = 6
        RETURNING q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.priority,
                  q.attempt, q.properties, q.enqueued_at, q.counted_in, now(), true, NULL::smallint, q.error_code,
                  q.error_description, NULL::text, NULL::text
    ), ready AS (
        DELETE FROM work_queue q
         WHERE q.instance_id = p_instance_id AND q.seq = p_seq AND q.task = 6 AND q.claim_id IS NULL
        RETURNING q.seq, q.host_id, q.message_id, q.subscription_id, q.service_class, q.service_id, q.priority,
                  q.attempt, q.properties, q.enqueued_at, q.counted_in, now(), true, NULL::smallint, NULL::text,
                  NULL::text, NULL::text, NULL::text
    )
    INSERT INTO suspended_queue AS s (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                      priority, task, attempt, properties, enqueued_at, counted_in, suspended_at,
                                      resumable, cause, error_code, error_description, adapter, uri)
    -- The start of the port does not resume it.
    SELECT f.seq, f.host_id, f.message_id, f.subscription_id, f.service_class, f.service_id, p_new_id,
           f.priority, 1, f.attempt, f.properties, f.enqueued_at, f.counted_in, f.suspended_at, f.resumable,
           CASE WHEN f.cause = 2 THEN 2 ELSE 4 END, coalesce(f.error_code, 'OPERATOR'),
           coalesce(f.error_description, 'Moved aside by an operator.'), f.adapter, f.uri
      FROM (TABLE suspended UNION ALL TABLE waiting UNION ALL TABLE ready) f
    RETURNING s.instance_id, s.message_id;
END $$;
