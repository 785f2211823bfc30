-- Remove the subscriptions that no program has used for their time. Their messages are suspended: they stay until an operator
-- decides, or until a program subscribes under the same name and an operator resumes them. Returns the number of messages.
-- Index: work_queue_programs. Locks: changes the routing (advisory (7001, 0) exclusive), if a subscription expires.
CREATE OR REPLACE FUNCTION messagebox.expire_program_subscriptions(p_now timestamptz DEFAULT now()) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    expired record;
    suspended bigint := 0;
    n bigint;
BEGIN
    FOR expired IN
        DELETE FROM program_subscriptions u WHERE u.last_used_at < p_now - u.expire_after RETURNING *
    LOOP
        PERFORM remove_subscription(s.id, p_now)
           FROM subscriptions s WHERE s.service_id = expired.service_id AND s.removed_at IS NULL;
        WITH moved AS (
            DELETE FROM work_queue q
             WHERE q.claim_id IS NULL AND q.service_class = 256 AND q.service_id = expired.service_id RETURNING *
        )
        INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, attempt, enqueued_at, counted_in, suspended_at, cause, error_code,
                                     error_description)
        SELECT m.seq, m.host_id, m.message_id, m.subscription_id, m.service_class, m.service_id, m.instance_id,
               m.priority, m.task, m.attempt, m.enqueued_at, m.counted_in, p_now, 2, 'SUBSCRIPTION_EXPIRED',
               format('No program has used the subscription %s since %s.', expired.name,
                      to_char(expired.last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'))
          FROM moved m;
        GET DIAGNOSTICS n = ROW_COUNT;
        suspended := suspended + n;
    END LOOP;
    RETURN suspended;
END $$;
