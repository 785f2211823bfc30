-- The orchestrations of one application (or of all) with their hosts, and the number of their instances
-- and of their messages in the queues, and why host instances do not load files, by path, by name and version.
-- Indexes: orchestration_instances_service. The queues are read whole.
SELECT o.id AS service_id, o.application, h.name AS host, coalesce(i.instances, 0) AS instances,
       coalesce(i.suspended, 0) AS suspended_instances, coalesce(w.waiting, 0) AS waiting,
       coalesce(s.suspended, 0) AS suspended_messages,
       (SELECT coalesce(jsonb_object_agg(p.key, p.value), '{}')
          FROM host_instances n CROSS JOIN LATERAL jsonb_each(n.code_problems) p
         WHERE n.host_id = o.host_id AND n.dead_since IS NULL) AS problems
  FROM services o
  JOIN hosts h ON h.id = o.host_id
  LEFT JOIN (SELECT service_id, count(*) AS instances, count(suspended_at) AS suspended
               FROM orchestration_instances GROUP BY 1) i ON i.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS waiting FROM work_queue WHERE service_class = 'orchestrations' GROUP BY 1) w
         ON w.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS suspended FROM suspended_queue
              WHERE service_class = 'orchestrations' GROUP BY 1) s
         ON s.service_id = o.id
 WHERE o.kind = 'orchestration' AND o.application = coalesce(%(application)s, o.application)
 ORDER BY o.name, o.version
