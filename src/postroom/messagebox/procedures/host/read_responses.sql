-- For each request of this host: return whether its response is stored, and its content type; whether a caller still
-- waits for it, the instance of this caller, and the token that the response must have; and whether the host instance
-- that holds this caller has ended, so that another one can take over the request. All are read by one statement,
-- because the response is stored in the transaction that ends the wait.
-- Indexes: primary keys of receipts, stored_responses, host_instances and correlation_types, subscriptions_instance,
-- properties by key.
CREATE OR REPLACE FUNCTION messagebox.read_responses___HOST__(p_units uuid[])
RETURNS TABLE (
    unit uuid, stored boolean, content_type text, waiting boolean, instance_id uuid, orphaned boolean, token text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT u.unit, f.unit IS NOT NULL, f.content_type, s.id IS NOT NULL, s.instance_id,
           s.for_host_instance IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = s.for_host_instance),
           s.correlation_values[array_position(t.property_ids, p.id)]
      FROM unnest(p_units) AS u (unit)
      LEFT JOIN receipts r ON r.unit = u.unit AND r.chunk = 0
      LEFT JOIN subscriptions s ON s.instance_id = (r.outcome->>'instance_id')::uuid AND s.host_id = __HOST_ID__
                               AND s.removed_at IS NULL
      LEFT JOIN correlation_types t ON t.id = s.correlation_type_id
      LEFT JOIN properties p ON p.key = 'BTS#EpmRRCorrelationToken'
      LEFT JOIN stored_responses f ON f.unit = u.unit AND f.number = 0 AND f.host_id = __HOST_ID__;
$$;
