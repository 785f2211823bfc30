-- Take resumable instances out of the suspended queues, or those of their messages that have one of p_tasks. Returns
-- null if there are none. The caller gives the rows to int_enqueue or int_schedule.
-- Index: suspended_queue_instance.
CREATE OR REPLACE FUNCTION messagebox.int_take_suspended(
    p_instance_ids uuid[], p_tasks messagebox.queue_task[] DEFAULT NULL
)
RETURNS messagebox.queue_row[]
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken queue_row[];
BEGIN
    WITH done AS (
        DELETE FROM suspended_queue q
         WHERE q.instance_id = ANY (p_instance_ids) AND q.resumable AND (p_tasks IS NULL OR q.task = ANY (p_tasks))
        RETURNING int_row(q) AS row
    )
    SELECT array_agg(d.row) INTO taken FROM done d;
    RETURN taken;
END $$;
