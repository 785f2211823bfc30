-- Create a started instance subscription: equalities that all have to hold, stored once with the hash by which it is
-- found. Its filter text is not stored, because its values come from messages and everybody may read filters (ADR
-- 0012). Called by create_instance_subscription_<host>. Values are value keys (see docs/reference/tables.md). Changes
-- the routing only if its correlation type is new.
CREATE OR REPLACE FUNCTION messagebox.int_create_instance_subscription(
    p_host_id smallint, p_service_class messagebox.service_class, p_service_id uuid, p_service_name text,
    p_priority smallint, p_instance_id uuid, p_keys text[], p_value_types smallint[], p_values text[],
    p_ordered boolean, p_request_response boolean, p_for_host_instance integer, p_kept_for interval,
    p_now timestamptz DEFAULT now()
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    the_ids integer[];
    the_values text[];
    the_type integer;
    the_subscription bigint;
BEGIN
    SELECT array_agg(o.id ORDER BY o.id), array_agg(o.value ORDER BY o.id) INTO the_ids, the_values
      FROM unnest(deployed_property_ids(p_keys, p_value_types), p_values) AS o (id, value);
    the_type := correlation_type(the_ids);
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, filter, priority, instance_id, state,
                               ordered, request_response, created_at, correlation_type_id, correlation_values,
                               correlation_hash, first_seq, for_host_instance, kept_until)
    VALUES (p_host_id, p_service_class, p_service_id, p_service_name, '', p_priority, p_instance_id, 'started',
            p_ordered, p_request_response, p_now, the_type, the_values, correlation_hash(the_type, the_values),
            coalesce(pg_sequence_last_value('messagebox.queue_sequence'), 0) + 1, p_for_host_instance,
            p_now + p_kept_for)
    RETURNING id INTO the_subscription;
    RETURN the_subscription;
END $$;
