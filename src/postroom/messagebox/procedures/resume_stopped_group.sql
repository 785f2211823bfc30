-- After a send port group was started, move the messages that were suspended on their way through it back into the work
-- queue, under their old numbers, for the ports that are started, and at most p_limit of them. Returns the number per
-- host. See resume_stopped.
-- Indexes: suspended_queue_stopped_group, the primary key of services.
CREATE OR REPLACE FUNCTION messagebox.resume_stopped_group(p_group_id uuid, p_limit integer DEFAULT NULL)
RETURNS TABLE (host_id smallint, resumed_count bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    resumed queue_row[];
BEGIN
    WITH done AS (
        DELETE FROM suspended_queue d
         WHERE d.group_id = p_group_id AND d.cause = 'port stopped' AND d.seq IN (
            SELECT q.seq FROM suspended_queue q
             WHERE q.group_id = p_group_id AND q.cause = 'port stopped'
               AND EXISTS (SELECT 1 FROM services p WHERE p.id = q.service_id AND p.state = 'started')
             ORDER BY q.seq LIMIT p_limit)
        RETURNING int_row(d) AS row
    )
    SELECT array_agg(d.row) INTO resumed FROM done d;
    PERFORM int_enqueue(resumed);
    RETURN QUERY SELECT r.host_id, count(*) FROM unnest(resumed) r GROUP BY r.host_id;
END $$;
