-- The send port groups, by name. Indexes: none needed; there are few.
SELECT g.id, a.name, g.definition
  FROM management.send_port_groups g
  JOIN management.applications a ON a.id = g.application_id
 ORDER BY g.name
