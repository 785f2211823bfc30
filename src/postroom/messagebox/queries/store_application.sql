-- Store an application as it was declared. Index: applications by name.
INSERT INTO applications (name, definition) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, applied_at = now()
RETURNING id
