-- Route a message: take the routing lock and evaluate its subscriptions. The caller counts the references. Raises PR001
-- if the subscriptions have changed since they were found, or if an instance subscription was removed. Raises PR002 if
-- no host may receive the message. Returns the number of references.
-- Locks, in this order and until commit: advisory (7001, 0) shared, the rows of instance subscriptions, the ordered
-- instances (see lock_ordered_instances).
CREATE OR REPLACE FUNCTION messagebox.route_message(
    p_batch_id uuid, p_version bigint, p_message_id uuid, p_subscription_ids bigint[], p_instance_ids uuid[],
    p_priorities smallint[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    routing record;
    locked record;
    references_made integer;
BEGIN
    SELECT * INTO routing FROM lock_routing();
    IF routing.version <> p_version THEN
        RAISE EXCEPTION 'the subscriptions changed' USING ERRCODE = 'PR001';
    END IF;
    SELECT * INTO locked FROM lock_instance_subscriptions(p_subscription_ids);
    IF NOT locked.all_there THEN
        RAISE EXCEPTION 'the subscriptions changed' USING ERRCODE = 'PR001';
    END IF;
    IF locked.has_ordered THEN
        PERFORM lock_ordered_instances(ARRAY(
            SELECT coalesce(s.instance_id, CASE WHEN s.convoy_set_id IS NULL THEN s.service_id ELSE f.new_instance END)
              FROM unnest(p_subscription_ids, p_instance_ids) AS f (id, new_instance)
              CROSS JOIN LATERAL (SELECT * FROM subscriptions WHERE id = f.id OFFSET 0) s
             WHERE s.ordered));
    END IF;
    references_made := evaluate_subscriptions(p_batch_id, p_message_id, p_subscription_ids, p_instance_ids,
                                              p_priorities, p_now);
    IF references_made = 0 THEN
        RAISE EXCEPTION 'no host that subscribes may receive message %', p_message_id USING ERRCODE = 'PR002';
    END IF;
    RETURN references_made;
END $$;
