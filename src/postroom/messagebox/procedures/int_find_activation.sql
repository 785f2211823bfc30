-- Return the activation subscription of a convoy, or null if its orchestration is not enlisted: that of the version
-- p_service_id, or of another one. Versions share their convoys, and only the newest has a subscription.
-- The services are read whole; the settings of end_orchestrations would let PostgreSQL compile the statement for that.
-- Index: subscriptions_of_service.
CREATE OR REPLACE FUNCTION messagebox.int_find_activation(p_service_id uuid, p_convoy_set_id integer) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = messagebox, management, pg_temp SET enable_seqscan = on AS $$
BEGIN
    RETURN (SELECT a.id
              FROM services v
              JOIN services o ON o.kind = v.kind AND o.name = v.name
              JOIN subscriptions a ON a.service_id = o.id AND a.instance_id IS NULL AND a.removed_at IS NULL
                                  AND a.convoy_set_id = p_convoy_set_id
             WHERE v.id = p_service_id LIMIT 1);
END $$;
