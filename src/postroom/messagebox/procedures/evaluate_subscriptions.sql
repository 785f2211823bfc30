-- For each subscription that was found, and whose host may receive the message, insert a reference into the work queue
-- (started) or the suspended queue (stopped). Returns the number of references. The task is join_instance if the
-- message joins an instance: by a subscription of that instance, or by a convoy whose instance the caller has located.
-- It is deliver_in_order for an ordered send port, whose instance has the id of the port. The priority is that of the
-- subscription, except for messages that join a convoy. The caller has locked the ordered instances, and the rows draw
-- their numbers here. Routes.write (agent/routing/routes.py) decides the same for messages that are written by COPY.
-- Index: subscriptions' primary key, and by OFFSET 0 no other, whatever statistics there are: those of a table that was
-- just filled let the planner read all live subscriptions for each message.
CREATE OR REPLACE FUNCTION messagebox.evaluate_subscriptions(
    p_message_id uuid, p_subscription_ids bigint[], p_instance_ids uuid[], p_priorities smallint[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    references_made integer;
BEGIN
    WITH found AS (
        SELECT s.*, coalesce(s.instance_id,
                             CASE t.task WHEN 'deliver_in_order' THEN s.service_id ELSE f.new_instance END)
                        AS the_instance, t.task AS the_task, f.priority AS the_priority
          FROM unnest(p_subscription_ids, p_instance_ids, p_priorities) AS f (id, new_instance, priority)
          CROSS JOIN LATERAL (SELECT * FROM subscriptions WHERE id = f.id OFFSET 0) s
          CROSS JOIN LATERAL (SELECT CASE
                WHEN s.instance_id IS NOT NULL OR s.convoy_set_id IS NOT NULL THEN 'join_instance'
                WHEN s.ordered AND s.service_class = 'messaging_in_process' THEN 'deliver_in_order'
                ELSE 'deliver' END::queue_task AS task) t
         WHERE s.removed_at IS NULL
    ), queued AS (
        INSERT INTO work_queue (host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                priority, task, enqueued_at, for_host_instance)
        SELECT host_id, p_message_id, id, service_class, service_id, the_instance, the_priority, the_task, now(),
               for_host_instance
          FROM found WHERE state = 'started' ORDER BY id
        RETURNING 1
    ), suspended AS (
        INSERT INTO suspended_queue (host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, enqueued_at, suspended_at, cause, error_code, error_description,
                                     group_id)
        SELECT host_id, p_message_id, id, service_class, service_id, the_instance, the_priority, the_task, now(),
               now(), 'port stopped', 'PORT_STOPPED',
               'The subscriber ' || service_name
               || coalesce(', or the send port group ' || group_name || ' that the message comes through,', '')
               || ' is enlisted but stopped.',
               group_id
          FROM found WHERE state = 'stopped' ORDER BY id
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM queued) + (SELECT count(*) FROM suspended) INTO references_made;
    RETURN references_made;
END $$;
