-- The send ports of one application (or of all) with their hosts and the number of their messages in the queues, by
-- name. A port that was moved may still have messages in the queues of its old host, so the queues of all hosts are
-- counted.
-- Reads all rows of the queues.
SELECT p.id AS port_id, p.application, h.name AS host, coalesce(w.waiting, 0) AS waiting,
       coalesce(c.retrying, 0) AS retrying, coalesce(c.scheduled, 0) AS scheduled, c.next_attempt_at,
       coalesce(s.suspended, 0) AS suspended
  FROM services p
  JOIN hosts h ON h.id = p.host_id
  LEFT JOIN (SELECT service_id, count(*) AS waiting FROM work_queue GROUP BY 1) w ON w.service_id = p.id
  LEFT JOIN (SELECT service_id, count(*) FILTER (WHERE state = 'waiting to retry') AS retrying,
                    count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
                    min(valid_from) FILTER (WHERE NOT paused) AS next_attempt_at
               FROM scheduled_queue GROUP BY 1) c ON c.service_id = p.id
  LEFT JOIN (SELECT service_id, count(*) AS suspended FROM suspended_queue GROUP BY 1) s ON s.service_id = p.id
 WHERE p.kind = 'send port' AND p.removed_at IS NULL AND p.application = coalesce(%(application)s, p.application)
 ORDER BY p.name
