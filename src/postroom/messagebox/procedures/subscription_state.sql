-- Return the state of a subscription, or null if it does not exist or was removed.
-- Index: the primary key of subscriptions.
CREATE OR REPLACE FUNCTION messagebox.subscription_state(p_subscription_id bigint) RETURNS smallint
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT s.state FROM subscriptions s WHERE s.id = p_subscription_id AND s.removed_at IS NULL;
$$;
