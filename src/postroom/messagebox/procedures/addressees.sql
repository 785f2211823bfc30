-- List every send port and send port group by name, with the ids that direct a message to it (CTX-21), and whether it
-- is enlisted and two-way. A host does not see the ports of other hosts, but every publisher may direct messages to
-- them. A dynamic port has no transport of its own.
-- Reads services whole. Index: subscriptions_group.
CREATE OR REPLACE FUNCTION messagebox.addressees()
RETURNS TABLE (
    name text, is_group boolean, id uuid, transport_id uuid, is_enlisted boolean, members_enlisted boolean,
    is_two_way boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT s.name, s.kind = 'send port group', s.id, s.transport_id, s.state <> 'bound',
           s.kind = 'send port'
           OR EXISTS (SELECT 1 FROM subscriptions a WHERE a.group_id = s.id AND a.removed_at IS NULL), s.two_way
      FROM services s
     WHERE s.kind IN ('send port', 'send port group') AND s.removed_at IS NULL
     ORDER BY 2, 1;
$$;
