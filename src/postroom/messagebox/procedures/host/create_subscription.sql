-- Bts_CreateSubscription_<host>: a host creates subscriptions for itself alone.
CREATE OR REPLACE FUNCTION messagebox.create_subscription___HOST__(
    p_service_class messagebox.service_class, p_service_id uuid, p_service_name text, p_filter text,
    p_priority smallint DEFAULT 5,
    p_convoy_set_id integer DEFAULT NULL, p_ordered boolean DEFAULT false, p_request_response boolean DEFAULT false,
    p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT messagebox.int_create_subscription(__HOST_ID__::smallint, p_service_class, p_service_id, p_service_name,
                                              p_filter, p_priority, p_convoy_set_id, p_ordered, p_request_response,
                                              p_now);
$$;
