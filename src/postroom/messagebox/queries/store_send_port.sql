-- Store a send port as declared. An existing send port keeps its ids.
-- Index: send_ports (name).
INSERT INTO send_ports (id, application_id, host_id, transport_id, definition, uri, backup_uri)
VALUES (%(id)s, %(application_id)s, %(host_id)s, %(transport_id)s, %(definition)s, %(uri)s, %(backup_uri)s)
    ON CONFLICT (name) DO UPDATE
       SET host_id = excluded.host_id, definition = excluded.definition, uri = excluded.uri,
           backup_uri = excluded.backup_uri
RETURNING id, (SELECT a.name FROM applications a WHERE a.id = send_ports.application_id), name, host_id, two_way,
          CASE WHEN adapter_kind <> 'dynamic' THEN transport_id END
