-- Move suspended instances back into the work queues of their hosts, under their old numbers, to be published by the
-- current subscriptions. A message for a send port gets task 5, and the messaging service of the host takes it, even if
-- the port is a Spark sink. A message of an ordered send port becomes an instance of its own. A received message that
-- has passed its pipeline is published as if it was resumed. Returns the rerouted instances. Others are skipped: not
-- suspended, not resumable, messages that a pipeline has to read first, and messages that joined an instance.
-- Index: suspended_queue (instance_id).
CREATE OR REPLACE FUNCTION messagebox.reroute_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS TABLE (instance_id uuid, host_id smallint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH rerouted AS (
        DELETE FROM suspended_queue q
         WHERE q.instance_id = ANY (p_instance_ids) AND q.resumable AND q.task IN (1, 3, 5, 6)
        RETURNING q.*
    ), queued AS (
        INSERT INTO work_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                priority, task, attempt, enqueued_at, counted_in)
        SELECT seq, host_id, message_id, subscription_id, CASE WHEN task = 1 THEN 4 ELSE service_class END, service_id,
               CASE WHEN task = 6 THEN gen_random_uuid() ELSE instance_id END, priority,
               CASE WHEN task IN (1, 6) THEN 5 ELSE task END, 0, p_now, counted_in
          FROM rerouted ORDER BY seq
    )
    SELECT DISTINCT r.instance_id, r.host_id FROM rerouted r;
$$;
