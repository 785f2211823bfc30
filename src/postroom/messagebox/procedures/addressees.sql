-- List every send port and send port group by name, with the ids that direct a message to it (CTX-21), and whether it
-- is enlisted and two-way. A host does not see the ports of other hosts, but every publisher may direct messages to
-- them.
-- Reads the tables whole.
CREATE OR REPLACE FUNCTION messagebox.addressees()
RETURNS TABLE (
    name text, is_group boolean, id uuid, transport_id uuid, is_dynamic boolean, is_enlisted boolean,
    members_enlisted boolean, is_two_way boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT p.name, false, p.id, p.transport_id, p.adapter_kind = 'dynamic', p.state <> 1, true, p.two_way
      FROM send_ports p
    UNION ALL
    SELECT g.name, true, g.id, NULL, false, g.state <> 1,
           EXISTS (SELECT 1 FROM send_port_group_members m JOIN send_ports p ON p.id = m.port_id
                    WHERE m.group_id = g.id AND p.state <> 1),
           false
      FROM send_port_groups g
     ORDER BY 2, 1;
$$;
