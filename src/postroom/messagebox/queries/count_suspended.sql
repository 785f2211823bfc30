-- The number of suspended messages and of suspended orchestration instances by service and error code, and when
-- the last was suspended, without the reports of routing failures. Reads all rows of the suspended queues
-- and all orchestration instances.
SELECT coalesce(v.name, a.name, ''), c.what, c.error_code, sum(c.instances)::bigint, max(c.last_at)
  FROM (SELECT service_id, 'message' AS what, error_code, count(DISTINCT instance_id) AS instances,
               max(suspended_at) AS last_at
          FROM suspended_queue WHERE cause <> 'routing failure report' GROUP BY 1, 2, 3
        UNION ALL
        SELECT service_id, 'instance', error_code, count(*), max(suspended_at)
          FROM orchestration_instances WHERE suspended_at IS NOT NULL GROUP BY 1, 2, 3) c
  LEFT JOIN services v ON v.id = c.service_id
  LEFT JOIN program_subscriptions a ON a.service_id = c.service_id
 GROUP BY 1, 2, 3
