-- The deployed applications, with the number of their artifacts.
SELECT a.name,
       (SELECT count(*) FROM receive_ports r WHERE r.application_id = a.id) AS receive_ports,
       (SELECT count(*) FROM receive_locations l JOIN receive_ports r ON r.id = l.receive_port_id
         WHERE r.application_id = a.id) AS locations,
       (SELECT count(*) FROM send_ports s WHERE s.application_id = a.id) AS send_ports,
       (SELECT count(*) FROM send_port_groups g WHERE g.application_id = a.id) AS send_port_groups,
       (SELECT count(*) FROM orchestrations o WHERE o.application_id = a.id) AS orchestrations,
       (SELECT count(*) FROM management.lookups l WHERE l.application_id = a.id) AS lookups,
       a.applied_at
  FROM applications a
 ORDER BY a.name
