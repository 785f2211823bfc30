-- The conditions of an InstanceQuery for the rows `i` of the view instances. Every condition is optional. `suspended`
-- is true if only suspended instances are wanted: then the other queues are not read. Names are resolved once, not for
-- each row. With `unreceived` the messages that ended orchestration instances have not received are wanted too,
-- whatever their state and task are.
-- Indexes: suspended_queue (instance_id) and scheduled_queue (instance_id) if ids are given. For the other messages of
-- an instance: these, work_queue_instance and work_queue_ordered.
(%(ids)s::uuid[] IS NULL OR i.instance_id = ANY (%(ids)s))
AND (%(states)s::instance_state[] IS NULL OR i.state = ANY (%(states)s::instance_state[])
     OR (%(unreceived)s AND i.error_code = '0xC0C01B4C'))
AND (NOT %(suspended)s OR i.suspended_at IS NOT NULL)
AND (%(services)s::uuid[] IS NULL OR i.service_id = ANY (%(services)s))
AND (%(tasks)s::queue_task[] IS NULL OR i.task = ANY (%(tasks)s::queue_task[])
     OR (%(unreceived)s AND i.error_code = '0xC0C01B4C'))
AND (%(host)s::text IS NULL OR i.host_id = (SELECT h.id FROM hosts h WHERE lower(h.name) = lower(%(host)s)))
AND (%(port)s::text IS NULL
     OR i.service_id = ANY (ARRAY(SELECT v.id FROM services v WHERE %(port)s IN (v.name, v.port_name)))
     OR i.subscription_id = ANY (ARRAY(
         SELECT s.id FROM subscriptions s WHERE %(port)s IN (s.service_name, s.group_name))))
AND (NOT %(removed)s OR i.service_id = ANY (ARRAY(SELECT v.id FROM services v WHERE v.removed_at IS NOT NULL)))
AND (%(error)s::text IS NULL OR i.error_code = %(error)s)
AND (%(message)s::uuid IS NULL OR i.message_id = %(message)s)
AND (%(interchange)s::uuid IS NULL OR is_of_interchange(i.message_id, %(interchange)s))
-- An instance with several messages is shown with its first message, or with the requested one.
AND (i.task <> 'join_instance' OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
         SELECT 1 FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 'join_instance' AND e.seq < i.seq))
AND (i.task <> 'deliver_in_order' OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
         SELECT 1 FROM instances e
          WHERE e.instance_id = i.instance_id AND e.task = 'deliver_in_order' AND e.seq < i.seq))
