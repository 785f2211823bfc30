-- What starting and stopping a port does to its subscriptions: started (1) or stopped (2) from now on. Refuses (42501) any
-- other state, subscriptions of instances, and such as are disabled, which is for administrators to change.
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
