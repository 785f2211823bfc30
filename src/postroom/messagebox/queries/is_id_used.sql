-- Return true if a port, a group or a location has this id, or had it and was removed.
-- Indexes: the primary keys.
SELECT %(id)s IN (SELECT id FROM send_ports WHERE id = %(id)s
                  UNION ALL SELECT id FROM receive_locations WHERE id = %(id)s
                  UNION ALL SELECT id FROM receive_ports WHERE id = %(id)s
                  UNION ALL SELECT id FROM send_port_groups WHERE id = %(id)s
                  UNION ALL SELECT id FROM removed_services WHERE id = %(id)s)
