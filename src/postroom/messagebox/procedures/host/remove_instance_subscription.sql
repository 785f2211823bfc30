-- Remove one subscription of an instance that continues: a receive that no longer waits. Returns whether it existed.
-- Index: subscriptions' primary key. Locks: its row, FOR UPDATE; waits for publishes that have found it already.
CREATE OR REPLACE FUNCTION messagebox.remove_instance_subscription___HOST__(
    p_subscription_id bigint, p_now timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM 1 FROM subscriptions
      WHERE id = p_subscription_id AND host_id = __HOST_ID__ AND instance_id IS NOT NULL AND removed_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE subscriptions SET removed_at = p_now WHERE id = p_subscription_id;
    RETURN true;
END $$;
