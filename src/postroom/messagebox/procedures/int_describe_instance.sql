-- Describe an instance by its first message, for the audit: state, service and error code. Null if it is in no queue.
-- Indexes: suspended_queue (instance_id), scheduled_queue (instance_id); the work queue is read whole.
CREATE OR REPLACE FUNCTION messagebox.int_describe_instance(p_instance_id uuid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT jsonb_build_object(
               'state', i.state,
               'service', coalesce(v.name || CASE WHEN v.version > 1 THEN ' version ' || v.version ELSE '' END,
                                   s.service_name,
                                   CASE WHEN i.cause = 'routing failure report' THEN i.cause::text ELSE '' END),
               'error_code', i.error_code)
      FROM instances i
      LEFT JOIN services v ON v.id = i.service_id
      LEFT JOIN subscriptions s ON s.id = i.subscription_id
     WHERE i.instance_id = p_instance_id
     ORDER BY i.seq LIMIT 1;
$$;
