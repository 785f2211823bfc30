-- Publish a message: lock the routing, write its queue rows (evaluate_subscriptions), store context and metadata in the
-- spool and the body part in parts. insert_part stores its other parts. An only reference is counted by the rows of the
-- message and of its body part, unless the part is in fragments. Other references are counted in the ref-count logs.
-- The originator is accepted from a trusted login only. Raises PR001 if the subscriptions have changed since they were
-- found, or if an instance subscription was removed. Returns the number of references.
-- Locks, in this order and until commit: advisory (7001, 0) shared, the rows of instance subscriptions, the ordered
-- instances (see lock_ordered_instances).
CREATE OR REPLACE FUNCTION messagebox.insert_message(
    p_version bigint, p_message_id uuid, p_context jsonb, p_subscription_ids bigint[], p_instance_ids uuid[],
    p_priorities smallint[], p_part_ids uuid[], p_body_part_id uuid, p_name text, p_content_type text, p_charset text,
    p_size bigint, p_body bytea
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    routing record;
    locked record;
    references_made integer;
BEGIN
    SELECT * INTO routing FROM lock_routing();
    SELECT * INTO locked FROM lock_instance_subscriptions(p_subscription_ids);
    IF routing.version <> p_version OR locked.all_there IS NOT TRUE THEN
        RAISE EXCEPTION 'the subscriptions changed' USING ERRCODE = 'PR001';
    END IF;
    IF locked.has_ordered THEN
        PERFORM lock_ordered_instances(ARRAY(
            SELECT coalesce(s.instance_id, CASE WHEN s.convoy_set_id IS NULL THEN s.service_id ELSE f.new_instance END)
              FROM unnest(p_subscription_ids, p_instance_ids) AS f (id, new_instance)
              CROSS JOIN LATERAL (SELECT * FROM subscriptions WHERE id = f.id OFFSET 0) s
             WHERE s.ordered));
    END IF;
    references_made := evaluate_subscriptions(p_message_id, p_subscription_ids, p_instance_ids, p_priorities);
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, originator_sid, originator_pid,
                       only_reference)
    SELECT p_message_id, p_part_ids, p_body_part_id, p_name, p_context,
           CASE WHEN t.trusted THEN originator_in(p_context, 'BTS#OriginatorSID') END,
           CASE WHEN t.trusted THEN originator_in(p_context, 'BTS#OriginatorPID') END,
           references_made = 1
      FROM (SELECT is_trusted() AS trusted) t;
    IF p_body_part_id IS NOT NULL THEN
        PERFORM insert_part(p_body_part_id, p_name, p_content_type, p_charset, p_size, p_body,
                            references_made = 1 AND p_body IS NOT NULL);
    END IF;
    IF references_made > 1 THEN
        PERFORM int_log_references(references_made, ARRAY[p_message_id], p_part_ids);
    ELSIF cardinality(p_part_ids) > 1 OR p_body IS NULL THEN
        PERFORM int_log_references(1, NULL, CASE WHEN p_body IS NULL THEN p_part_ids
                                                 ELSE array_remove(p_part_ids, p_body_part_id) END);
    END IF;
    RETURN references_made;
END $$;
