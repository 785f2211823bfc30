-- Lock the instance subscriptions that a publish has found, so that they are not removed before it commits. Returns
-- false if one is already removed. Then the publish must match again.
-- Index: subscriptions' primary key, and by OFFSET 0 no other. Locks: the rows of instance subscriptions, FOR KEY SHARE
-- (which publishers share, and removal waits for); most messages meet none, and one look is all that they pay.
CREATE OR REPLACE FUNCTION messagebox.lock_instance_subscriptions(p_subscription_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    instances bigint[];
    all_there boolean;
BEGIN
    SELECT array_agg(f.id ORDER BY f.id) FILTER (WHERE s.instance_id IS NOT NULL), bool_and(coalesce(s.there, false))
      INTO instances, all_there
      FROM unnest(p_subscription_ids) AS f (id)
      LEFT JOIN LATERAL (SELECT instance_id, removed_at IS NULL AS there FROM subscriptions WHERE id = f.id OFFSET 0) s
        ON true;
    IF NOT all_there THEN
        RETURN false;
    ELSIF instances IS NULL THEN
        RETURN true;
    END IF;
    PERFORM 1 FROM subscriptions WHERE id = ANY (instances) ORDER BY id FOR KEY SHARE;
    -- Another statement, which sees what was committed while this one waited.
    RETURN cardinality(instances) = (
        SELECT count(*)
          FROM unnest(instances) AS f (id)
          CROSS JOIN LATERAL (SELECT removed_at FROM subscriptions WHERE id = f.id OFFSET 0) s
         WHERE s.removed_at IS NULL);
END $$;
