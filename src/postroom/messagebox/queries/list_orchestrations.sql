-- The orchestrations of one application (or of all) with their hosts, and the number of their instances
-- and of their messages in the queues, and the reason if a host instance does not load the file, by name and version.
-- Indexes: orchestration_instances_service. The queues are read whole.
SELECT o.id AS service_id, a.name AS application, h.name AS host, coalesce(i.instances, 0) AS instances,
       coalesce(i.suspended, 0) AS suspended_instances, coalesce(w.waiting, 0) AS waiting,
       coalesce(s.suspended, 0) AS suspended_messages,
       (SELECT max(n.code_problems ->> o.file) FROM host_instances n
         WHERE n.host_id = o.host_id AND n.dead_since IS NULL) AS problem
  FROM orchestrations o
  JOIN applications a ON a.id = o.application_id
  JOIN hosts h ON h.id = o.host_id
  LEFT JOIN (SELECT service_id, count(*) AS instances, count(suspended_at) AS suspended
               FROM orchestration_instances GROUP BY 1) i ON i.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS waiting FROM work_queue WHERE service_class = 1 GROUP BY 1) w
         ON w.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS suspended FROM suspended_queue WHERE service_class = 1 GROUP BY 1) s
         ON s.service_id = o.id
 WHERE a.name = %(application)s OR %(application)s::text IS NULL
 ORDER BY o.name, o.version
