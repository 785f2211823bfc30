-- The orchestrations of one application (or of all) with their hosts, and the number of their instances
-- and of their messages in the queues, and why host instances do not load their files, by name and version.
-- Indexes: orchestration_instances_service. The queues are read whole.
SELECT o.id AS service_id, o.application, h.name AS host, coalesce(i.instances, 0) AS instances,
       coalesce(i.waiting, 0) AS waiting_instances, coalesce(i.suspended, 0) AS suspended_instances,
       coalesce(w.queued, 0) AS queued_messages,
       coalesce(s.suspended, 0) AS suspended_messages,
       (SELECT min(n.problems ->> o.id::text) FROM host_instances n
         WHERE n.host_id = o.host_id AND n.dead_since IS NULL) AS problem
  FROM services o
  JOIN hosts h ON h.id = o.host_id
  LEFT JOIN (SELECT service_id, count(*) AS instances, count(suspended_at) AS suspended,
                    count(*) FILTER (WHERE suspended_at IS NULL AND claim_id IS NULL AND ready_seq IS NULL) AS waiting
               FROM orchestration_instances GROUP BY 1) i ON i.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS queued FROM work_queue WHERE service_class = 'orchestrations' GROUP BY 1) w
         ON w.service_id = o.id
  LEFT JOIN (SELECT service_id, count(*) AS suspended FROM suspended_queue
              WHERE service_class = 'orchestrations' GROUP BY 1) s
         ON s.service_id = o.id
 WHERE o.kind = 'orchestration' AND o.application = coalesce(%(application)s, o.application)
 ORDER BY o.name, o.version
