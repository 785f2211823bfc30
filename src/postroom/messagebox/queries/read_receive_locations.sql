-- The receive locations of one host (null: of all), by name. __ADAPTER__ is the adapter, or its kind for those who may
-- not read it.
-- Indexes: none needed; there are few.
SELECT l.id AS location_id, l.name, p.id AS port_id, p.name AS port_name, l.host_id, __ADAPTER__ AS adapter_json,
       l.pipeline AS pipeline_json, l.uri, l.enabled, p.route_failures, p.authentication, l.maps AS maps_json,
       l.response AS response_json, l.schedule
  FROM management.receive_locations l
  JOIN management.receive_ports p ON p.id = l.receive_port_id
 WHERE l.host_id = coalesce(%(host_id)s, l.host_id)
 ORDER BY l.name
