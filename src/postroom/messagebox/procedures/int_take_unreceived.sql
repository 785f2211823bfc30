-- Take the messages that ended orchestration instances have not received out of the suspended queues. They are not
-- resumable (end_orchestrations). Returns null if there are none. The caller gives the rows to int_enqueue.
-- Index: suspended_queue_instance.
CREATE OR REPLACE FUNCTION messagebox.int_take_unreceived(p_instance_ids uuid[]) RETURNS messagebox.queue_row[]
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken queue_row[];
BEGIN
    WITH done AS (
        DELETE FROM suspended_queue q
         WHERE q.instance_id = ANY (p_instance_ids) AND q.task = 'join_instance' AND q.error_code = '0xC0C01B4C'
        RETURNING int_row(q) AS row
    )
    SELECT array_agg(d.row) INTO taken FROM done d;
    RETURN taken;
END $$;
