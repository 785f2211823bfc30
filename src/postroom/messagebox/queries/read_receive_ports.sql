-- The receive ports of an application. Index: applications by name.
SELECT p.name, p.id AS port_id, p.route_failures, p.authentication
  FROM receive_ports p
  JOIN applications a ON a.id = p.application_id
 WHERE a.name = %s
