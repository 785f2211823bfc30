-- The deployed applications with their definitions, which are the sum of their artifacts.
-- Indexes: none needed; there are few.
SELECT a.id, a.name, jsonb_build_object(
           'name', a.name, 'properties', a.properties, 'hosts', a.hosts,
           'receive_ports', (
               SELECT coalesce(jsonb_agg(p.definition || jsonb_build_object('locations', (
                          SELECT coalesce(jsonb_agg(l.definition), '[]')
                            FROM receive_locations l WHERE l.receive_port_id = p.id))), '[]')
                 FROM receive_ports p WHERE p.application_id = a.id),
           'send_ports', (
               SELECT coalesce(jsonb_agg(p.definition), '[]') FROM send_ports p WHERE p.application_id = a.id),
           'send_port_groups', (
               SELECT coalesce(jsonb_agg(g.definition), '[]') FROM send_port_groups g WHERE g.application_id = a.id),
           'orchestrations', (
               SELECT coalesce(jsonb_agg(o.definition), '[]') FROM orchestrations o WHERE o.application_id = a.id),
           'lookups', (
               SELECT coalesce(jsonb_agg(l.definition), '[]') FROM management.lookups l WHERE l.application_id = a.id)
       ) AS definition
  FROM applications a
