-- The name of what an operator has bound a logical port to, for the audit: a send port or a group, 'direct', or
-- 'default' without a binding.
-- Indexes: the primary keys of bindings, send_ports and send_port_groups.
CREATE OR REPLACE FUNCTION management.bound_name(p_orchestration text, p_logical_port text) RETURNS text
LANGUAGE sql STABLE SET search_path = management, pg_temp AS $$
    SELECT coalesce(
        (SELECT coalesce(p.name, g.name, 'direct')
           FROM bindings b
           LEFT JOIN send_ports p ON p.id = b.send_port_id
           LEFT JOIN send_port_groups g ON g.id = b.group_id
          WHERE b.orchestration = p_orchestration AND b.logical_port = p_logical_port),
        'default');
$$;
