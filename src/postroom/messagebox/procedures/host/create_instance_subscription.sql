-- Bts_CreateSubscription_<host> for an existing instance: a host creates subscriptions for itself alone.
CREATE OR REPLACE FUNCTION messagebox.create_instance_subscription___HOST__(
    p_service_class messagebox.service_class, p_service_id uuid, p_service_name text, p_priority smallint,
    p_instance_id uuid, p_keys text[], p_value_types smallint[], p_values text[], p_ordered boolean DEFAULT false,
    p_request_response boolean DEFAULT false, p_for_host_instance integer DEFAULT NULL,
    p_kept_for interval DEFAULT NULL, p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT messagebox.int_create_instance_subscription(
        __HOST_ID__::smallint, p_service_class, p_service_id, p_service_name, p_priority, p_instance_id, p_keys,
        p_value_types, p_values, p_ordered, p_request_response, p_for_host_instance,
        p_kept_for, p_now);
$$;
