-- Lock the instance subscriptions that a publish has found, so that they are not removed before it commits. Returns
-- whether all are there; if one is already removed, the publish must match again. Also returns whether one of the
-- subscriptions is ordered (see lock_ordered_instances).
-- Index: subscriptions' primary key, and by OFFSET 0 no other. Locks: the rows of instance subscriptions, FOR KEY SHARE
-- (which publishers share, and removal waits for); most messages meet none, and one look is all that they pay.
CREATE OR REPLACE FUNCTION messagebox.lock_instance_subscriptions(
    p_subscription_ids bigint[], OUT all_there boolean, OUT has_ordered boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    instances bigint[];
BEGIN
    SELECT array_agg(f.id ORDER BY f.id) FILTER (WHERE s.instance_id IS NOT NULL), bool_and(coalesce(s.there, false)),
           bool_or(s.ordered)
      INTO instances, all_there, has_ordered
      FROM unnest(p_subscription_ids) AS f (id)
      LEFT JOIN LATERAL (SELECT instance_id, ordered, removed_at IS NULL AS there FROM subscriptions
                          WHERE id = f.id OFFSET 0) s ON true;
    IF NOT all_there OR instances IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM subscriptions WHERE id = ANY (instances) ORDER BY id FOR KEY SHARE;
    -- Another statement, which sees what was committed while this one waited.
    all_there := cardinality(instances) = (
        SELECT count(*)
          FROM unnest(instances) AS f (id)
          CROSS JOIN LATERAL (SELECT removed_at FROM subscriptions WHERE id = f.id OFFSET 0) s
         WHERE s.removed_at IS NULL);
END $$;
