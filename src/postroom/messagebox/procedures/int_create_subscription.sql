-- Create a stopped activation subscription without predicates. Called by create_subscription_<host>. Its convoy set
-- must belong to the same host. A subscription that replaces one with the same filter, in the same transaction,
-- continues it: the messages of the old one were routed to it.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.int_create_subscription(
    p_host_id smallint, p_service_class messagebox.service_class, p_service_id uuid, p_service_name text, p_filter text,
    p_priority smallint, p_convoy_set_id integer, p_ordered boolean, p_request_response boolean,
    p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    the_subscription bigint;
    new_version bigint := change_routing();
BEGIN
    IF p_convoy_set_id IS NOT NULL THEN
        PERFORM 1 FROM convoy_sets WHERE id = p_convoy_set_id AND host_id = p_host_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'convoy set % does not belong to this host', p_convoy_set_id USING ERRCODE = '42501';
        END IF;
    END IF;
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, filter, priority, convoy_set_id,
                               ordered, request_response, created_at, version, created_in, first_seq)
    VALUES (p_host_id, p_service_class, p_service_id, p_service_name, p_filter, p_priority, p_convoy_set_id,
            p_ordered, p_request_response, p_now, new_version, pg_current_xact_id(),
            -- No publish writes queue rows while the routing is locked.
            coalesce((SELECT min(s.first_seq) FROM subscriptions s
                       WHERE s.service_id = p_service_id AND s.filter = p_filter AND s.removed_at = p_now),
                     coalesce(pg_sequence_last_value('messagebox.queue_sequence'), 0) + 1))
    RETURNING id INTO the_subscription;
    RETURN the_subscription;
END $$;
