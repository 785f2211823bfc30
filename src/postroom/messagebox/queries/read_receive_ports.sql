-- The receive ports of an application. Index: applications by name.
SELECT p.id AS port_id, p.name, p.definition
  FROM receive_ports p
  JOIN applications a ON a.id = p.application_id
 WHERE a.name = %s
