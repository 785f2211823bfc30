-- Move due rows from the scheduled queue into the work queue, under their old numbers. If circuit breakers are open,
-- their probes and the messages of those that were closed are made due first.
-- Index: scheduled_queue_due, walked in its order (see dequeue_messages for why nothing else is allowed).
CREATE OR REPLACE FUNCTION messagebox.release_due___HOST__(p_limit integer, p_now timestamptz DEFAULT now())
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    released integer;
BEGIN
    IF EXISTS (SELECT 1 FROM open_circuits) THEN
        PERFORM release_paused___HOST__(p_now);
    END IF;
    WITH due AS (
        DELETE FROM __HOST___q_scheduled s
         WHERE s.ctid = ANY (ARRAY(
               SELECT w.ctid FROM __HOST___q_scheduled w WHERE w.valid_from <= p_now
                ORDER BY w.valid_from LIMIT p_limit FOR UPDATE SKIP LOCKED))
     RETURNING *
    )
    INSERT INTO __HOST___q (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                            priority, task, attempt, primary_attempts, properties, enqueued_at, counted_in)
    SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, attempt,
           primary_attempts, properties, enqueued_at, counted_in
      FROM due;
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END $$;
