-- The receive locations of one host (null: of all), or the one with this id (null: all), by name. __DEFINITION__ is the
-- column that the login may read.
-- Indexes: none needed; there are few.
SELECT l.id AS location_id, l.name, p.id AS port_id, p.definition AS port, l.host_id,
       l.__DEFINITION__ AS definition, l.uri, l.enabled, l.schedule
  FROM management.receive_locations l
  JOIN management.receive_ports p ON p.id = l.receive_port_id
 WHERE l.host_id = coalesce(%(host_id)s, l.host_id) AND l.id = coalesce(%(id)s, l.id)
 ORDER BY l.name
