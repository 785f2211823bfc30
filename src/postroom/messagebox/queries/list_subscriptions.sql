-- The subscriptions that can be matched, by service; every condition is optional.
-- Reads the subscriptions whole.
SELECT s.id, s.instance_id, s.service_class, s.service_id, s.service_name, h.name, s.priority, s.state, s.ordered,
       s.request_response, s.filter, s.created_at, s.valid_from, s.start_window, s.end_window, s.group_name
  FROM subscriptions s
  JOIN hosts h ON h.id = s.host_id
 WHERE s.removed_at IS NULL
   AND (%(id)s::bigint IS NULL OR s.id = %(id)s)
   AND (%(activation)s::boolean IS NULL OR (s.instance_id IS NULL) = %(activation)s)
   AND (%(service)s::text IS NULL OR s.service_name = %(service)s)
   AND (%(instance)s::uuid IS NULL OR s.instance_id = %(instance)s)
 ORDER BY s.service_name, s.id
 LIMIT %(limit)s
