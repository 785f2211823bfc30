-- The last step of a publish that found instance subscriptions: keeps them from being removed until it commits. False if
-- one of them is gone already; then everything has to be found again.
-- Index: subscriptions' primary key. Locks: their rows, FOR KEY SHARE (which publishers share, and removal waits for).
CREATE OR REPLACE FUNCTION messagebox.lock_instance_subscriptions(p_subscription_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM subscriptions s WHERE s.id = ANY (p_subscription_ids) AND s.instance_id IS NOT NULL
      ORDER BY s.id FOR KEY SHARE;
    -- Another statement, which sees what was committed while this one waited.
    RETURN NOT EXISTS (
        SELECT 1 FROM unnest(p_subscription_ids) AS f (id)
         WHERE NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.id = f.id AND s.removed_at IS NULL));
END $$;
