-- Start (1) or stop (2) the subscriptions of a port. Raises 42501 for any other state, for subscriptions of instances,
-- and for disabled ones, which only administrators may change.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.start_or_stop_subscription(p_subscription_id bigint, p_state smallint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM change_routing();
    IF p_state NOT IN (1, 2) OR EXISTS (SELECT 1 FROM subscriptions
                                         WHERE id = p_subscription_id AND removed_at IS NULL
                                           AND (instance_id IS NOT NULL OR state = 3)) THEN
        RAISE EXCEPTION 'subscription % cannot be started and stopped', p_subscription_id USING ERRCODE = '42501';
    END IF;
    PERFORM set_subscription_state(p_subscription_id, p_state);
END $$;
