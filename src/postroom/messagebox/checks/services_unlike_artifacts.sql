-- Services whose name, application, host or other columns differ from those of their artifact in the schema management,
-- services without an artifact, and artifacts without a service.
SELECT coalesce(d.kind || ' ' || d.name, s.kind || ' ' || s.name)
  FROM (SELECT p.id, 'send port' AS kind, a.name AS application, p.name, p.name AS port_name, NULL::integer AS version,
               p.host_id, p.two_way, CASE WHEN p.adapter_kind <> 'dynamic' THEN p.transport_id END AS transport_id
          FROM send_ports p JOIN applications a ON a.id = p.application_id
        UNION ALL
        SELECT l.id, 'location', a.name, l.name, p.name, NULL, l.host_id, false, NULL
          FROM receive_locations l
          JOIN receive_ports p ON p.id = l.receive_port_id
          JOIN applications a ON a.id = p.application_id
        UNION ALL
        SELECT g.id, 'send port group', a.name, g.name, g.name, NULL, NULL, false, NULL
          FROM send_port_groups g JOIN applications a ON a.id = g.application_id
        UNION ALL
        SELECT o.id, 'orchestration', a.name, o.name, o.name, o.version, o.host_id,
               coalesce((o.definition ->> 'answers')::boolean, false), NULL
          FROM management.orchestrations o JOIN applications a ON a.id = o.application_id
        UNION ALL
        SELECT l.id, 'lookup', a.name, l.name, l.name, NULL, l.host_id, false, NULL
          FROM management.lookups l JOIN applications a ON a.id = l.application_id) d
  FULL JOIN known_services() s ON s.id = d.id
 WHERE d IS DISTINCT FROM s
