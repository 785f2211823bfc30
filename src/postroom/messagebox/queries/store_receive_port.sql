-- Store a receive port as declared. An existing one keeps its id. Index: receive_ports by name.
INSERT INTO receive_ports (id, application_id, definition) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
