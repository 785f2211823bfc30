-- The receive locations of one host (null: of all), by name. __ADAPTER__ is the adapter, or its kind for those who may
-- not read it.
-- Indexes: none needed; there are few.
SELECT l.id, l.name, p.id, p.name, l.host_id, __ADAPTER__, l.pipeline, l.uri,
       l.enabled, p.route_failures, p.authentication, l.maps, l.response, l.schedule
  FROM management.receive_locations l
  JOIN management.receive_ports p ON p.id = l.receive_port_id
 WHERE l.host_id = coalesce(%s, l.host_id)
 ORDER BY l.name
