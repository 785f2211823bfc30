-- The bindings that operators have made, with the id of the send port or group; null: direct.
SELECT b.orchestration, b.logical_port, coalesce(b.send_port_id, b.group_id) AS target_id
  FROM management.bindings b
 ORDER BY 1, 2
