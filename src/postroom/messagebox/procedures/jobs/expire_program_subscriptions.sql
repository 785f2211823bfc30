-- Remove the subscriptions that no program has used for their time. Their messages are suspended: they stay until an
-- operator decides, or until a program subscribes under the same name and an operator resumes them. Requests of
-- programs that have ended stop waiting, and their responses are suspended and cannot be resumed (RR-06). Messages that
-- a program has claimed are left until their lease expires. Returns the number of messages.
-- Index: work_queue_programs. Locks: changes the routing (advisory (7001, 0) exclusive), if a subscription with a
-- filter expires; the rows of instance subscriptions, FOR UPDATE, so that no publish adds a response afterwards.
CREATE OR REPLACE FUNCTION messagebox.expire_program_subscriptions(p_now timestamptz DEFAULT now()) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    expired record;
    suspended bigint := 0;
    n bigint;
BEGIN
    FOR expired IN
        DELETE FROM program_subscriptions u
         WHERE u.last_used_at < p_now - u.expire_after
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.service_id = u.service_id)
        RETURNING *
    LOOP
        PERFORM remove_subscription(s.id, p_now) FROM subscriptions s
          WHERE s.service_id = expired.service_id AND s.instance_id IS NULL AND s.removed_at IS NULL;
        PERFORM int_remove_instances(s.host_id, ARRAY[s.instance_id], p_now) FROM subscriptions s
          WHERE s.service_id = expired.service_id AND s.instance_id IS NOT NULL AND s.removed_at IS NULL;
        WITH moved AS (
            DELETE FROM work_queue q
             WHERE q.claim_id IS NULL AND q.service_class = 256 AND q.service_id = expired.service_id RETURNING *
        )
        INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, attempt, enqueued_at, counted_in, suspended_at, cause, resumable,
                                     error_code, error_description)
        SELECT m.seq, m.host_id, m.message_id, m.subscription_id, m.service_class, m.service_id, m.instance_id,
               m.priority, m.task, m.attempt, m.enqueued_at, m.counted_in, p_now, 2, m.task <> 4,
               CASE m.task WHEN 4 THEN 'CORRELATION' ELSE 'SUBSCRIPTION_EXPIRED' END,
               CASE m.task WHEN 4 THEN 'The response could not be correlated to an existing request.' || chr(10)
                                       || 'The program that waited for it has ended.'
                    ELSE format('No program has used the subscription %s since %s.', expired.name,
                                to_char(expired.last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')) END
          FROM moved m;
        GET DIAGNOSTICS n = ROW_COUNT;
        suspended := suspended + n;
    END LOOP;
    RETURN suspended;
END $$;
