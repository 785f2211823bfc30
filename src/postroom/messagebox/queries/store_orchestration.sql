-- Create or change an orchestration.
INSERT INTO orchestrations (id, application_id, host_id, name, version, file, code, filter, convoy, ordered,
                            correlations, priority, is_newest)
VALUES (%(id)s, %(application_id)s, %(host_id)s, %(name)s, %(version)s, %(file)s, %(code)s, %(filter)s, %(convoy)s,
        %(ordered)s, %(correlations)s, %(priority)s, %(is_newest)s)
ON CONFLICT (id) DO UPDATE
   SET host_id = excluded.host_id, file = excluded.file, code = excluded.code, filter = excluded.filter,
       convoy = excluded.convoy,
       convoy_set_id = CASE WHEN (orchestrations.host_id, orchestrations.convoy) = (excluded.host_id, excluded.convoy)
                            THEN orchestrations.convoy_set_id END,
       ordered = excluded.ordered, correlations = excluded.correlations, priority = excluded.priority,
       is_newest = excluded.is_newest
RETURNING (SELECT a.name FROM applications a WHERE a.id = orchestrations.application_id)
