-- Start, stop or, with null, remove an activation subscription of this host. Starting it resumes
-- the messages that were suspended while it was stopped. Rejects subscriptions of other hosts.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.change_subscription___HOST__(
    p_subscription_id bigint, p_state messagebox.service_state, p_now timestamptz DEFAULT now()
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    the_service uuid;
BEGIN
    SELECT service_id INTO the_service
      FROM subscriptions WHERE id = p_subscription_id AND host_id = __HOST_ID__ AND instance_id IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'subscription % does not belong to this host', p_subscription_id USING ERRCODE = '42501';
    ELSIF p_state IS NULL THEN
        PERFORM remove_subscription(p_subscription_id, p_now);
    ELSE
        PERFORM set_subscription_state(p_subscription_id, p_state);
        IF p_state = 'started' THEN
            PERFORM resume_stopped(the_service);
        END IF;
    END IF;
END $$;
