-- Service instances with the names of their hosts and services, by number: __DIRECTION__ is ASC for the lowest number
-- first and DESC for the highest number first. The conditions are in instance_conditions.sql.
-- Index: suspended_queue_number. The work queue and the scheduled queue are read whole: an index by number would cost
-- every publish and every retry. Names are read only for the rows of the result.
SELECT i.instance_id, i.state, h.name, i.service_class, i.service_id,
       coalesce(v.name, s.service_name), coalesce(v.port_name, s.service_name), i.subscription_id, i.message_id, i.task,
       i.attempt, i.priority, i.seq, i.enqueued_at, CASE WHEN i.service_class <> 'orchestrations' THEN i.valid_from END,
       CASE WHEN i.service_class = 'orchestrations' THEN i.valid_from END, i.suspended_at, i.cause, i.error_code,
       i.error_description, i.adapter, i.uri, i.related_instance_id, i.last_related_instance_id,
       CASE i.task
           WHEN 'join_instance' THEN (SELECT count(*) FROM instances e
                                       WHERE e.instance_id = i.instance_id AND e.task = 'join_instance')
           WHEN 'deliver_in_order' THEN (SELECT count(*) FROM instances e
                                          WHERE e.instance_id = i.instance_id AND e.task = 'deliver_in_order')
           ELSE 1 END,
       v.removed_at IS NOT NULL, i.primary_attempts IS NOT NULL, v.version
  FROM (SELECT * FROM instances i
         WHERE __CONDITIONS__
         ORDER BY i.seq __DIRECTION__
         LIMIT %(limit)s) i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN services v ON v.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 ORDER BY i.seq __DIRECTION__
