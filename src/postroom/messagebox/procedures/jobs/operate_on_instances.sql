-- Operations_OperateOnInstances: delete routing failure reports whose instances no longer exist. Returns their number.
-- A report without an instance, of a publish that was refused or of a failure that was routed, is deleted after 7 days.
-- A report is about a range of instance ids, which is looked up in the indexes of the suspended and scheduled queues.
-- The work queue is read once, for resumed instances.
-- Indexes: suspended_queue_reports, suspended_queue_instance, scheduled_queue_instance.
CREATE OR REPLACE FUNCTION messagebox.operate_on_instances() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    deleted queue_row[];
BEGIN
    WITH resumed AS MATERIALIZED (
        SELECT w.instance_id FROM work_queue w WHERE w.task IN ('receive', 'publish')
    ), done AS (
        DELETE FROM suspended_queue r
         WHERE r.cause = 'routing failure report' AND r.related_instance_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM suspended_queue s
                            WHERE s.instance_id BETWEEN r.related_instance_id AND r.last_related_instance_id)
           AND NOT EXISTS (SELECT 1 FROM scheduled_queue s
                            WHERE s.instance_id BETWEEN r.related_instance_id AND r.last_related_instance_id)
           AND NOT EXISTS (SELECT 1 FROM resumed w
                            WHERE w.instance_id BETWEEN r.related_instance_id AND r.last_related_instance_id)
        RETURNING int_row(r) AS row
    ), expired AS (
        DELETE FROM suspended_queue r
         WHERE r.cause = 'routing failure report' AND r.related_instance_id IS NULL
           AND r.suspended_at < now() - interval '7 days'
        RETURNING int_row(r) AS row
    )
    SELECT array_agg(d.row) INTO deleted FROM (TABLE done UNION ALL TABLE expired) d;
    RETURN int_finish(deleted);
END $$;
