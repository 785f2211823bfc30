-- The number of suspended instances by service and error code, without the reports of routing failures. Reads all rows
-- of the suspended queues.
SELECT coalesce(p.name, l.name, v.name, a.name, ''), c.error_code, c.instances
  FROM (SELECT service_id, error_code, count(DISTINCT instance_id) AS instances
          FROM suspended_queue WHERE cause <> 3 GROUP BY 1, 2) c
  LEFT JOIN send_ports p ON p.id = c.service_id
  LEFT JOIN receive_locations l ON l.id = c.service_id
  LEFT JOIN removed_services v ON v.id = c.service_id
  LEFT JOIN program_subscriptions a ON a.service_id = c.service_id
