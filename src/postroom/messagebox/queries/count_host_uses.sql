-- When each host was created, and the number of its receive locations and send ports.
SELECT h.id AS host_id, h.created_at,
       (SELECT count(*) FROM receive_locations l WHERE l.host_id = h.id) AS locations,
       (SELECT count(*) FROM send_ports p WHERE p.host_id = h.id) AS send_ports
  FROM hosts h
