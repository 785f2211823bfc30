-- Set the name of a send port, receive location or orchestration, and in its activation subscriptions, which publishers
-- and listings show. Queued messages are not changed: they refer to the id. Neither are the subscriptions of instances:
-- there may be millions, and persistence points lock them.
-- Indexes: subscriptions_of_service, the primary key of services. Locks: changes the routing (advisory (7001, 0)
-- exclusive).
CREATE OR REPLACE FUNCTION messagebox.rename_service(p_service_id uuid, p_name text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE services SET name = p_name, port_name = CASE WHEN kind = 'location' THEN port_name ELSE p_name END
     WHERE id = p_service_id;
    UPDATE subscriptions SET service_name = p_name, version = change_routing()
     WHERE service_id = p_service_id AND instance_id IS NULL AND removed_at IS NULL;
$$;
