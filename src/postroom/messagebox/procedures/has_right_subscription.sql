-- Return true if a service has the activation subscription that its state asks for: none while it is bound, and
-- otherwise one in the same state. Through a send port group both the port and the group count (SPT-13). A service that
-- is not activated by messages has none in any state.
-- Indexes: the primary key of services, subscriptions_of_service.
CREATE OR REPLACE FUNCTION messagebox.has_right_subscription(p_service_id uuid, p_group_id uuid, p_is_activated boolean)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT ARRAY(SELECT a.state FROM subscriptions a
                  WHERE a.service_id = p_service_id AND a.group_id IS NOT DISTINCT FROM p_group_id
                    AND a.instance_id IS NULL AND a.removed_at IS NULL)
           = ARRAY(SELECT min(s.state) FROM services s WHERE s.id IN (p_service_id, p_group_id) AND p_is_activated
                   HAVING min(s.state) <> 'bound');
$$;
