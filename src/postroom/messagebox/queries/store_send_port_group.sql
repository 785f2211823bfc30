-- A send port group as it is declared now. One that is there keeps its id, its state and its members; a new one is bound.
-- Index: send_port_groups (name).
INSERT INTO send_port_groups (id, application_id, name, description, filter)
VALUES (%(id)s, %(application_id)s, %(name)s, %(description)s, %(filter)s)
    ON CONFLICT (name) DO UPDATE SET description = excluded.description, filter = excluded.filter
RETURNING id
