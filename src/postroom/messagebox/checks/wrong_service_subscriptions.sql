-- Send ports, members of send port groups and orchestrations whose subscription does not match their states: it exists
-- while they are enlisted and is started while they are started. Through a group both the port and the group count
-- (SPT-13). Only the newest version of an orchestration has one (ORS-01).
SELECT w.service
  FROM (SELECT 'send port ' || p.name AS service, p.state AS state, p.subscription_id
          FROM send_ports p
        UNION ALL
        SELECT 'orchestration ' || o.name || ' version ' || o.version,
               CASE WHEN o.is_newest THEN o.state - 1 ELSE 1 END, o.subscription_id
          FROM management.orchestrations o
        UNION ALL
        SELECT 'send port ' || p.name || ' through group ' || g.name, least(p.state, g.state), m.subscription_id
          FROM send_port_group_members m
          JOIN send_ports p ON p.id = m.port_id
          JOIN send_port_groups g ON g.id = m.group_id) w
 CROSS JOIN LATERAL subscription_state(w.subscription_id) AS s (state)
 WHERE s.state IS DISTINCT FROM CASE w.state WHEN 2 THEN 2 WHEN 3 THEN 1 END
