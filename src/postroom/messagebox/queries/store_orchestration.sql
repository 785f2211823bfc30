-- Create or change an orchestration.
INSERT INTO orchestrations (id, application_id, host_id, definition, is_newest)
VALUES (%(id)s, %(application_id)s, %(host_id)s, %(definition)s, %(is_newest)s)
ON CONFLICT (id) DO UPDATE
   SET host_id = excluded.host_id, definition = excluded.definition,
       convoy_set_id = CASE WHEN (orchestrations.host_id, orchestrations.convoy) = (excluded.host_id, excluded.convoy)
                            THEN orchestrations.convoy_set_id END,
       is_newest = excluded.is_newest
RETURNING (SELECT a.name FROM applications a WHERE a.id = orchestrations.application_id)
