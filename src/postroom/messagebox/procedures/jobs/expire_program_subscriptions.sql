-- Remove the subscriptions that no program has used for their time, or that were removed (a time of 0). Their messages
-- are suspended: they stay until an operator decides, or until a program subscribes under the same name and an
-- operator resumes them. Requests of programs that have ended stop waiting, and their responses are suspended and
-- cannot be resumed (RR-06). Messages that a program has claimed are left until their lease expires. Returns the
-- number of messages.
-- Index: work_queue_programs. Locks: changes the routing (advisory (7001, 0) exclusive), if a
-- subscription with a filter expires; the rows of instance subscriptions, FOR UPDATE, so that no publish adds a
-- response afterwards.
CREATE OR REPLACE FUNCTION messagebox.expire_program_subscriptions(p_now timestamptz DEFAULT now()) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    expired record;
    suspended bigint := 0;
    moved queue_row[];
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
        WITH done AS (
            DELETE FROM work_queue q
             WHERE q.claim_id IS NULL AND q.service_class = 'programs' AND q.service_id = expired.service_id
            RETURNING q.task, int_row(q) AS row
        )
        SELECT array_agg(CASE d.task
                   WHEN 'join_instance' THEN int_fail(d.row, p_now, 'failure', false, 'CORRELATION',
                                        'The response could not be correlated to an existing request.' || chr(10)
                                        || 'The program that waited for it has ended.')
                   ELSE int_fail(d.row, p_now, 'failure', true, 'SUBSCRIPTION_EXPIRED', format(
                                 CASE WHEN expired.expire_after = '0' THEN 'A program removed the subscription %s.'
                                      ELSE 'No program has used the subscription %s since %s.' END, expired.name,
                                 to_char(expired.last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'))) END)
          INTO moved FROM done d;
        suspended := suspended + int_suspend(moved);
    END LOOP;
    RETURN suspended;
END $$;
