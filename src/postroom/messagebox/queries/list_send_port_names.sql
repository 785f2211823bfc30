-- The names of the send ports of an application. Index: applications by name.
SELECT p.name
  FROM send_ports p
  JOIN applications a ON a.id = p.application_id
 WHERE a.name = %s
