-- PurgeSubscriptions: delete the predicates of removed subscriptions, and later the subscriptions. A removed
-- subscription has not been matched since its removal was committed. Its row stays as long as an index in memory may
-- need to learn of the removal (p_keep). An older index finds rebuild_below and loads everything again. Instance
-- subscriptions are in no such index and are deleted at once. A subscription through a send port group stays as long as
-- rows are queued by it, because it identifies the copy of a message. That of a convoy stays as long as the convoy has
-- instances: a message that its instance does not receive was routed by it (end_orchestrations).
-- Indexes: subscriptions_removed, predicate_groups (subscription_id, number), predicates (group_id),
-- convoy_set_instances' primary key.
CREATE OR REPLACE FUNCTION messagebox.purge_subscriptions(
    p_keep interval DEFAULT '1 hour', p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    purged bigint;
    instances_purged bigint;
BEGIN
    WITH gone AS (
        DELETE FROM predicate_groups g USING subscriptions s
         WHERE s.id = g.subscription_id AND s.removed_at IS NOT NULL
        RETURNING g.id
    )
    DELETE FROM predicates p USING gone WHERE p.group_id = gone.id;
    GET DIAGNOSTICS purged = ROW_COUNT;
    DELETE FROM subscriptions WHERE removed_at IS NOT NULL AND instance_id IS NOT NULL;
    GET DIAGNOSTICS instances_purged = ROW_COUNT;
    WITH gone AS (
        DELETE FROM subscriptions
         WHERE removed_at < p_now - p_keep
           AND NOT EXISTS (SELECT 1 FROM convoy_set_instances c WHERE c.convoy_set_id = subscriptions.convoy_set_id)
           AND (group_id IS NULL OR id <> ALL (ARRAY(
                   SELECT i.subscription_id FROM instances i JOIN subscriptions s ON s.id = i.subscription_id
                    WHERE s.removed_at < p_now - p_keep AND s.group_id IS NOT NULL)))
        RETURNING version),
         newest AS (SELECT max(version) AS version FROM gone)
    UPDATE routing_version v SET rebuild_below = greatest(v.rebuild_below, n.version)
      FROM newest n WHERE n.version IS NOT NULL;
    -- A host that a port or location was moved away from reads its definition until nothing of it is left there.
    UPDATE services s SET former_host_ids = ARRAY(
        SELECT h FROM unnest(s.former_host_ids) h
         WHERE EXISTS (SELECT 1 FROM instances i WHERE i.service_id = s.id AND i.host_id = h))
     WHERE s.former_host_ids <> '{}';
    RETURN purged + instances_purged;
END $$;
