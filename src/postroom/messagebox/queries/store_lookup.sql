-- Store a declared lookup. An existing one keeps its id. Index: the primary key of lookups.
INSERT INTO management.lookups (id, application_id, host_id, definition)
VALUES (%(id)s, %(application_id)s, %(host_id)s, %(definition)s)
    ON CONFLICT (id) DO UPDATE SET host_id = excluded.host_id, definition = excluded.definition
RETURNING (SELECT a.name FROM applications a WHERE a.id = application_id)
