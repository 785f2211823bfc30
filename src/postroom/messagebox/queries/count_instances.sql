-- The number of instances by state and by one other field.
-- Reads all rows of the queues.
SELECT i.state,
       CASE %(by)s WHEN 'host' THEN h.name
                   WHEN 'port' THEN coalesce(p.name, r.name, v.port_name, s.service_name)
                   WHEN 'error' THEN i.error_code
                   -- One group for all rows with the same error, at any position.
                   -- The second line of a bad row names the column.
                   WHEN 'reason' THEN nullif(concat_ws(' ',
                        regexp_replace(split_part(i.error_description, E'\n', 1),
                                       '\m(row|line|column|record|document|byte) [0-9][0-9,]*', '\1 n', 'gi'),
                        substring(split_part(i.error_description, E'\n', 2) FROM '^(The column ''[^'']*'' is [^ ]+), but has')
                        || '.'), '')
                   WHEN 'adapter' THEN i.adapter
                   WHEN 'uri' THEN i.uri END,
       count(*), min(i.enqueued_at), max(i.enqueued_at)
  FROM instances i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN send_ports p ON p.id = i.service_id
  LEFT JOIN receive_locations l ON l.id = i.service_id
  LEFT JOIN receive_ports r ON r.id = l.receive_port_id
  LEFT JOIN removed_services v ON v.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 WHERE (%(ids)s::uuid[] IS NULL OR i.instance_id = ANY (%(ids)s))
   AND (%(states)s::smallint[] IS NULL OR i.state = ANY (%(states)s))
   AND (%(services)s::uuid[] IS NULL OR i.service_id = ANY (%(services)s))
   AND (%(tasks)s::smallint[] IS NULL OR i.task = ANY (%(tasks)s))
   AND (%(host)s::text IS NULL OR lower(h.name) = lower(%(host)s))
   AND (%(port)s::text IS NULL OR %(port)s IN (p.name, l.name, r.name, v.name, v.port_name, s.service_name, s.group_name))
   AND (%(error)s::text IS NULL OR i.error_code = %(error)s)
   AND (%(message)s::uuid IS NULL OR i.message_id = %(message)s)
   AND (%(interchange)s::uuid IS NULL OR is_of_interchange(i.message_id, %(interchange)s))
   -- An instance with several messages (tasks 4 and 6) is shown with its first message, or with the requested one.
   AND (i.task <> 4 OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 4 AND e.seq < i.seq))
   AND (i.task <> 6 OR %(message)s::uuid IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM instances e WHERE e.instance_id = i.instance_id AND e.task = 6 AND e.seq < i.seq))
 GROUP BY 1, 2
 ORDER BY 3 DESC, 2, 1
