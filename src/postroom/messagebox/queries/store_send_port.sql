-- Store a send port as declared. An existing send port keeps its ids, its state and its subscription. A new one is
-- bound.
-- Index: send_ports (name).
INSERT INTO send_ports (id, application_id, host_id, name, transport_id, adapter, uri, filter, priority, retry_count,
                        retry_interval, route_failures, description, maps, pipeline, response, service_window,
                        backup, backup_adapter, expire_after, circuit_breaker, ordered, stop_on_failure)
VALUES (%(id)s, %(application_id)s, %(host_id)s, %(name)s, %(transport_id)s, %(adapter)s, %(uri)s, %(filter)s,
        %(priority)s, %(retry_count)s, %(retry_interval)s, %(route_failures)s, %(description)s, %(maps)s,
        %(pipeline)s, %(response)s, %(service_window)s, %(backup)s, %(backup_adapter)s,
        %(expire_after)s, %(circuit_breaker)s, %(ordered)s, %(stop_on_failure)s)
    ON CONFLICT (name) DO UPDATE
       SET former_host_ids = array_remove(send_ports.former_host_ids || send_ports.host_id, excluded.host_id),
           host_id = excluded.host_id, adapter = excluded.adapter, uri = excluded.uri, filter = excluded.filter,
           priority = excluded.priority, retry_count = excluded.retry_count, retry_interval = excluded.retry_interval,
           route_failures = excluded.route_failures, description = excluded.description, maps = excluded.maps,
           pipeline = excluded.pipeline, response = excluded.response,
           service_window = excluded.service_window, backup = excluded.backup,
           backup_adapter = excluded.backup_adapter, expire_after = excluded.expire_after,
           circuit_breaker = excluded.circuit_breaker, ordered = excluded.ordered,
           stop_on_failure = excluded.stop_on_failure
RETURNING id
