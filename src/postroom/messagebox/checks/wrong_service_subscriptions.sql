-- Send ports, members of send port groups, orchestrations and lookups whose subscription does not match their states:
-- it exists while they are enlisted and is started while they are started. Through a group both the port and the group
-- count (SPT-13). Only the newest version of an orchestration has one (ORS-01).
SELECT w.service
  FROM (SELECT 'send port ' || p.name AS service, p.id, NULL::uuid AS group_id, true AS is_activated
          FROM send_ports p
        UNION ALL
        SELECT 'orchestration ' || o.name || ' version ' || o.version, o.id, NULL, o.is_newest
          FROM management.orchestrations o
        UNION ALL
        SELECT 'lookup ' || l.name, l.id, NULL, true
          FROM management.lookups l
        UNION ALL
        SELECT 'send port ' || p.name || ' through group ' || g.name, p.id, g.id, true
          FROM send_port_group_members m
          JOIN send_ports p ON p.id = m.port_id
          JOIN send_port_groups g ON g.id = m.group_id) w
 WHERE NOT has_right_subscription(w.id, w.group_id, w.is_activated)
