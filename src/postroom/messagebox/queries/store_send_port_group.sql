-- Store a send port group as declared. An existing group keeps its id and its members.
-- Index: send_port_groups (name).
INSERT INTO send_port_groups (id, application_id, definition) VALUES (%s, %s, %s)
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
RETURNING id, (SELECT a.name FROM applications a WHERE a.id = send_port_groups.application_id), name
