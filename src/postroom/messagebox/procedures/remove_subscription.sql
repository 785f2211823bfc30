-- Remove a subscription: after this commit it is not matched. Its predicates are deleted later by purge_subscriptions.
-- Messages that are already queued for it stay queued.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.remove_subscription(p_subscription_id bigint, p_now timestamptz DEFAULT now())
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE subscriptions SET removed_at = p_now, version = change_routing()
     WHERE id = p_subscription_id AND removed_at IS NULL;
$$;
