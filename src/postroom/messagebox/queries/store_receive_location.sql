-- Store a receive location as declared. An existing receive location keeps its id, stays enabled or disabled, and keeps
-- its schedule if none is declared.
-- Index: receive_locations (name).
INSERT INTO receive_locations (id, receive_port_id, host_id, definition, uri, enabled, schedule)
VALUES (%(id)s, %(port_id)s, %(host_id)s, %(definition)s, %(uri)s, %(enabled)s, %(schedule)s)
    ON CONFLICT (name) DO UPDATE
       SET receive_port_id = excluded.receive_port_id, host_id = excluded.host_id, definition = excluded.definition,
           uri = excluded.uri, schedule = coalesce(excluded.schedule, receive_locations.schedule)
RETURNING id, (SELECT a.name FROM receive_ports p JOIN applications a ON a.id = p.application_id
                WHERE p.id = receive_locations.receive_port_id),
          name, (SELECT p.name FROM receive_ports p WHERE p.id = receive_locations.receive_port_id), host_id
