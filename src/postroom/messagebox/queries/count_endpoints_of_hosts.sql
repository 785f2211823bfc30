-- The number of receive locations and of send ports of each host that has any.
SELECT e.host_id, count(*) FILTER (WHERE NOT e.sends), count(*) FILTER (WHERE e.sends)
  FROM (SELECT host_id, false AS sends FROM receive_locations UNION ALL SELECT host_id, true FROM send_ports) e
 GROUP BY e.host_id
