-- A subscription, stopped, without predicates. Called by create_subscription_<host>, which says for which host.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.int_create_subscription(
    p_host_id smallint, p_service_class smallint, p_service_id uuid, p_service_name text, p_filter text,
    p_priority smallint, p_instance_id uuid, p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, filter, priority, instance_id,
                               created_at, version)
    VALUES (p_host_id, p_service_class, p_service_id, p_service_name, p_filter, p_priority, p_instance_id, p_now,
            change_routing())
    RETURNING id;
$$;
