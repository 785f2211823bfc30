-- Service instances with the names of their hosts and services. Every condition is optional. `direction` is 1 for the
-- lowest number first and -1 for the highest number first. `after` excludes numbers up to and including this one.
-- Indexes: suspended_queue (instance_id) and scheduled_queue (instance_id) if ids are given. Otherwise all rows of the
-- queues are read. For the other messages of an instance: these, work_queue_instance and
-- work_queue_ordered.
SELECT i.instance_id, i.state, h.name, i.service_class, i.service_id, coalesce(p.name, l.name, v.name, o.name, s.service_name),
       coalesce(p.name, r.name, v.port_name, o.name, s.service_name), i.subscription_id, i.message_id, i.task, i.attempt,
       i.priority, i.seq, i.enqueued_at, i.valid_from, i.suspended_at, i.cause, i.error_code, i.error_description,
       i.adapter, i.uri, i.related_instance_id, i.last_related_instance_id,
       CASE i.task WHEN 4 THEN (SELECT count(*) FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 4)
                   WHEN 6 THEN (SELECT count(*) FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 6)
                   ELSE 1 END,
       v.id IS NOT NULL, i.primary_attempts IS NOT NULL
  FROM instances i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN send_ports p ON p.id = i.service_id
  LEFT JOIN receive_locations l ON l.id = i.service_id
  LEFT JOIN receive_ports r ON r.id = l.receive_port_id
  LEFT JOIN removed_services v ON v.id = i.service_id
  LEFT JOIN orchestrations o ON o.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 WHERE (%(ids)s::uuid[] IS NULL OR i.instance_id = ANY (%(ids)s))
   AND (%(states)s::smallint[] IS NULL OR i.state = ANY (%(states)s))
   AND (%(services)s::uuid[] IS NULL OR i.service_id = ANY (%(services)s))
   AND (%(tasks)s::smallint[] IS NULL OR i.task = ANY (%(tasks)s))
   AND (%(host)s::text IS NULL OR lower(h.name) = lower(%(host)s))
   AND (%(port)s::text IS NULL OR %(port)s IN (p.name, l.name, r.name, v.name, v.port_name, o.name, s.service_name, s.group_name))
   AND (%(error)s::text IS NULL OR i.error_code = %(error)s)
   AND (%(message)s::uuid IS NULL OR i.message_id = %(message)s)
   AND (%(interchange)s::uuid IS NULL OR is_of_interchange(i.message_id, %(interchange)s))
   -- An instance with several messages (tasks 4 and 6) is shown with its first message, or with the requested one.
   AND (i.task <> 4 OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 4 AND e.seq < i.seq))
   AND (i.task <> 6 OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 6 AND e.seq < i.seq))
   AND (%(after)s::bigint IS NULL OR i.seq > %(after)s)
 ORDER BY i.seq * %(direction)s
 LIMIT %(limit)s
