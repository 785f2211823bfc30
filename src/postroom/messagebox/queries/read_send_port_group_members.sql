-- The members of all send port groups, by name. Indexes: none needed; there are few.
SELECT m.group_id, p.id, p.name
  FROM management.send_port_group_members m
  JOIN management.send_ports p ON p.id = m.port_id
 ORDER BY p.name
