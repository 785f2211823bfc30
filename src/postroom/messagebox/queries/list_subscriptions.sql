-- The subscriptions that can be matched, by service; every condition is optional.
-- Indexes: subscriptions_service_name, in whose order they come; subscriptions_instance if an instance is given.
SELECT s.id, s.service_class, s.service_id, s.service_name, h.name, s.instance_id, s.priority, s.state, s.ordered,
       s.request_response, s.filter,
       coalesce((SELECT array_agg(p.key ORDER BY o.number)
                   FROM convoy_sets c
                  CROSS JOIN unnest(c.property_ids) WITH ORDINALITY AS o (property_id, number)
                   JOIN properties p ON p.id = o.property_id
                  WHERE c.id = s.convoy_set_id), '{}'),
       s.created_at, s.group_name
  FROM subscriptions s
  JOIN hosts h ON h.id = s.host_id
 WHERE s.removed_at IS NULL
   AND (%(id)s::bigint IS NULL OR s.id = %(id)s)
   AND (%(activation)s::boolean IS NULL OR (s.instance_id IS NULL) = %(activation)s)
   AND (%(service)s::text IS NULL OR s.service_name = %(service)s)
   AND (%(group)s::text IS NULL OR s.group_name = %(group)s)
   AND (%(instance)s::uuid IS NULL OR s.instance_id = %(instance)s)
 ORDER BY s.service_name, s.id
 LIMIT %(limit)s
