-- Start or stop a subscription. evaluate_subscriptions reads the state for each match.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.set_subscription_state(p_subscription_id bigint, p_state messagebox.service_state)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE subscriptions SET state = p_state, version = change_routing()
     WHERE id = p_subscription_id AND removed_at IS NULL;
$$;
