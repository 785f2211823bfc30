-- Remove the subscriptions of a running instance that wait for a value of a property, because its receive has ended.
-- Returns whether there was one.
-- Index: subscriptions_instance. Locks: their rows, FOR UPDATE; waits for publishes that have found them already.
CREATE OR REPLACE FUNCTION messagebox.remove_instance_subscription___HOST__(
    p_instance_id uuid, p_key text, p_value text, p_now timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    waiting bigint[];
BEGIN
    waiting := ARRAY(
        SELECT s.id FROM subscriptions s
          JOIN correlation_types t ON t.id = s.correlation_type_id
          JOIN properties r ON r.key = p_key
         WHERE s.instance_id = p_instance_id AND s.host_id = __HOST_ID__ AND s.removed_at IS NULL
           AND s.correlation_values[array_position(t.property_ids, r.id)] = p_value
         ORDER BY s.id FOR UPDATE OF s);
    UPDATE subscriptions SET removed_at = p_now WHERE id = ANY (waiting);
    RETURN FOUND;
END $$;
