-- The hosts with the number of their instances, receive locations and send ports. An instance whose lock is gone is
-- dead, although it is still registered.
SELECT h.id AS host_id, h.name, h.is_default, h.trusted, h.isolated, h.stopped, h.role_name, h.created_at,
       (SELECT count(*) FROM host_instances i WHERE i.host_id = h.id AND i.kind = 'host' AND i.dead_since IS NULL)
           AS running_instances,
       (SELECT count(*) FROM receive_locations l WHERE l.host_id = h.id) AS locations,
       (SELECT count(*) FROM send_ports p WHERE p.host_id = h.id) AS send_ports
  FROM hosts h
 ORDER BY h.name
