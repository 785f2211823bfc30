-- For each request of this host: return its stored response, if there is one, and whether its caller still waits. Both
-- are read by one statement, because the response is stored in the transaction that ends the wait.
-- Indexes: stored_responses' primary key, subscriptions_instance.
DROP FUNCTION IF EXISTS messagebox.read_response___HOST__(uuid);
CREATE OR REPLACE FUNCTION messagebox.read_responses___HOST__(p_units uuid[], p_instance_ids uuid[])
RETURNS TABLE (unit uuid, waiting boolean, content_type text, body bytea)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT q.unit, EXISTS (SELECT 1 FROM subscriptions s
                            WHERE s.instance_id = q.instance_id AND s.host_id = __HOST_ID__ AND s.removed_at IS NULL),
           r.content_type, r.body
      FROM unnest(p_units, p_instance_ids) AS q (unit, instance_id)
      LEFT JOIN stored_responses r ON r.unit = q.unit AND r.host_id = __HOST_ID__;
$$;
