-- After a service was started, move the messages that were suspended because it was stopped back into the work queue,
-- under their old numbers, the lowest first, and at most p_limit of them. Messages of another subscription of the
-- service stay until that one is started. Messages through a send port group stay until the group is started, unless it
-- was removed. The start moves the first piece under the exclusive routing lock, and an operation moves the rest
-- without it: what is published after the start is not suspended.
-- Indexes: suspended_queue_stopped; the primary keys of subscriptions and services.
CREATE OR REPLACE FUNCTION messagebox.resume_stopped(p_service_id uuid, p_limit integer DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    resumed queue_row[];
BEGIN
    WITH done AS (
        DELETE FROM suspended_queue d
         WHERE d.service_id = p_service_id AND d.cause = 'port stopped' AND d.seq IN (
            SELECT q.seq FROM suspended_queue q
             WHERE q.service_id = p_service_id AND q.cause = 'port stopped'
               AND NOT EXISTS (SELECT 1 FROM subscriptions s
                                WHERE s.id = q.subscription_id AND s.removed_at IS NULL AND s.state <> 'started')
               AND NOT EXISTS (SELECT 1 FROM services g WHERE g.id = q.group_id AND g.state <> 'started')
             ORDER BY q.seq LIMIT p_limit)
        RETURNING int_row(d) AS row
    )
    SELECT array_agg(d.row) INTO resumed FROM done d;
    RETURN int_enqueue(resumed);
END $$;
