-- The lookups of one application (or of all) with their hosts, the number of their entries and of the messages that
-- wait to be applied or are suspended. Reads the entries and the queues whole.
SELECT s.application, s.name, h.name AS host, l.key_property, coalesce(e.entries, 0) AS entries, e.changed_at,
       coalesce(w.messages, 0) AS waiting, coalesce(p.messages, 0) AS suspended
  FROM services s
  JOIN lookup_contents l ON l.service_id = s.id
  JOIN hosts h ON h.id = s.host_id
  LEFT JOIN (SELECT lookup_id, count(*) FILTER (WHERE part_name IS NOT NULL) AS entries, max(applied_at) AS changed_at
               FROM lookup_entries GROUP BY 1) e ON e.lookup_id = l.id
  LEFT JOIN (SELECT service_id, count(*) AS messages FROM work_queue WHERE service_class = 'caching' GROUP BY 1) w
         ON w.service_id = s.id
  LEFT JOIN (SELECT service_id, count(*) AS messages FROM suspended_queue WHERE service_class = 'caching' GROUP BY 1) p
         ON p.service_id = s.id
 WHERE s.kind = 'lookup' AND s.application = coalesce(%(application)s, s.application)
 ORDER BY s.name
