-- Take the messages of instances out of their work and scheduled queues, and out of the suspended ones if p_suspended;
-- with p_seq only this message of an ordered send port. Messages that a host has claimed stay. Returns null if there
-- are none. The caller gives the rows to int_suspend or int_finish.
-- Indexes: suspended_queue_instance, scheduled_queue_instance, work_queue_ordered; without p_seq the work queue is read
-- whole. A plan with the ids in it looks each row up in a hash table of them. A generic plan would compare each row
-- with every id.
CREATE OR REPLACE FUNCTION messagebox.int_take_instances(
    p_instance_ids uuid[], p_suspended boolean, p_seq bigint DEFAULT NULL
) RETURNS messagebox.queue_row[]
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    taken queue_row[];
BEGIN
    WITH suspended AS (
        DELETE FROM suspended_queue q
         WHERE p_suspended AND q.instance_id = ANY (p_instance_ids)
           AND (p_seq IS NULL OR q.seq = p_seq AND q.task = 'deliver_in_order')
        RETURNING int_row(q) AS row
    ), waiting AS (
        DELETE FROM scheduled_queue q
         WHERE q.instance_id = ANY (p_instance_ids) AND (p_seq IS NULL OR q.seq = p_seq AND q.task = 'deliver_in_order')
        RETURNING int_row(q) AS row
    ), ready AS (
        DELETE FROM work_queue q
         WHERE q.instance_id = ANY (p_instance_ids) AND q.claim_id IS NULL
           AND (p_seq IS NULL OR q.seq = p_seq AND q.task = 'deliver_in_order')
        RETURNING int_row(q) AS row
    )
    SELECT array_agg(t.row) INTO taken FROM (TABLE suspended UNION ALL TABLE waiting UNION ALL TABLE ready) t;
    RETURN taken;
END $$;
