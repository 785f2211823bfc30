-- Set the state of a subscription: started (1), stopped (2) or disabled (3). evaluate_subscriptions reads it for each
-- match.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.set_subscription_state(p_subscription_id bigint, p_state smallint) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE subscriptions SET state = p_state, version = change_routing()
     WHERE id = p_subscription_id AND removed_at IS NULL;
$$;
