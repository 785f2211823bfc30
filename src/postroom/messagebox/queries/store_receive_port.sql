-- Store a receive port as declared. Index: receive_ports by name.
INSERT INTO receive_ports (id, application_id, name, route_failures, authentication) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET route_failures = excluded.route_failures, authentication = excluded.authentication
