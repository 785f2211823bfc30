-- Send ports and members of send port groups whose subscription does not match their states: it exists while they are
-- enlisted and is started while they are started. Through a group both the port and the group count (SPT-13).
SELECT 'send port ' || w.port || coalesce(' through group ' || w.send_port_group, '')
  FROM (SELECT p.name AS port, NULL AS send_port_group, p.state AS state, p.subscription_id
          FROM send_ports p
        UNION ALL
        SELECT p.name, g.name, least(p.state, g.state), m.subscription_id
          FROM send_port_group_members m
          JOIN send_ports p ON p.id = m.port_id
          JOIN send_port_groups g ON g.id = m.group_id) w
  LEFT JOIN subscriptions s ON s.id = w.subscription_id AND s.removed_at IS NULL
 WHERE CASE w.state WHEN 1 THEN s.id IS NOT NULL
                    WHEN 2 THEN s.state IS DISTINCT FROM 2
                    ELSE s.state IS DISTINCT FROM 1 END
