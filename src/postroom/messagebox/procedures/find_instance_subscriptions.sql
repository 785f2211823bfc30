-- Return the instance subscriptions with these hashes, for a publisher that has computed them from its messages and
-- compares the values. One lookup per hash, independent of the number of waiting instances.
-- Index: subscriptions_correlation. Sequential scans are off: a statistic from before instances waited would cause one.
CREATE OR REPLACE FUNCTION messagebox.find_instance_subscriptions(p_hashes bigint[])
RETURNS TABLE (hash bigint, type_id integer, wanted text[], subscription_id bigint, host_id smallint,
               service_class text, service_id uuid, service_name text, priority smallint, state text,
               ordered boolean, instance_id uuid, for_host_instance integer)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT s.correlation_hash, s.correlation_type_id, s.correlation_values, s.id, s.host_id,
           s.service_class::text, s.service_id, s.service_name, s.priority, s.state::text, s.ordered, s.instance_id,
           s.for_host_instance
      FROM subscriptions s
     WHERE s.correlation_hash = ANY (p_hashes) AND s.instance_id IS NOT NULL AND s.removed_at IS NULL
     ORDER BY s.id;
$$;
