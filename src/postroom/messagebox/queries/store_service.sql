-- Store what the MessageBox knows about a service. A service that was moved to another host keeps its old host, which
-- may still have messages of it. A removed service is restored and keeps its instances. Index: the primary key of
-- services.
INSERT INTO services (id, kind, application, name, port_name, version, host_id, two_way, transport_id)
VALUES (%(id)s, %(kind)s, %(application)s, %(name)s, %(port_name)s, %(version)s, %(host_id)s, %(two_way)s,
        %(transport_id)s)
    ON CONFLICT (id) DO UPDATE
       SET former_host_ids = CASE WHEN services.host_id IS NULL THEN '{}'
                                  ELSE array_remove(services.former_host_ids || services.host_id, excluded.host_id) END,
           application = excluded.application, name = excluded.name, port_name = excluded.port_name,
           version = excluded.version, host_id = excluded.host_id, two_way = excluded.two_way,
           transport_id = excluded.transport_id, removed_at = NULL, backlog = 'keep'
