-- Bind a logical port of an orchestration to a send port, to a send port group, or directly, or remove its binding, and
-- record it in the audit. A logical port without a binding is bound as its application declares. Raises PR404 if the
-- orchestration does not name the logical port, or has no binding to remove.
-- Index: the primary key of bindings. Reads orchestrations whole. Locks: changes the routing (advisory (7001, 0)
-- exclusive), because running hosts detect changes by its version.
CREATE OR REPLACE FUNCTION messagebox.bind_logical_port(
    p_orchestration text, p_logical_port text, p_bind boolean, p_send_port_id uuid, p_group_id uuid
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    target_before text;
    target_after text;
BEGIN
    PERFORM change_routing();
    PERFORM FROM orchestrations o
      WHERE o.name = p_orchestration
        AND jsonb_path_exists(o.definition, 'strict $.ports[*] ? (@[0] == $port)',
                              jsonb_build_object('port', p_logical_port), true);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'orchestration % has no logical port %', p_orchestration, p_logical_port
            USING ERRCODE = 'PR404';
    END IF;
    target_before := bound_name(p_orchestration, p_logical_port);
    IF p_bind THEN
        INSERT INTO bindings AS b (orchestration, logical_port, send_port_id, group_id)
        VALUES (p_orchestration, p_logical_port, p_send_port_id, p_group_id)
        ON CONFLICT (orchestration, logical_port) DO UPDATE
           SET send_port_id = excluded.send_port_id, group_id = excluded.group_id;
    ELSE
        DELETE FROM bindings b WHERE b.orchestration = p_orchestration AND b.logical_port = p_logical_port;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the logical port % of orchestration % has no binding', p_logical_port, p_orchestration
                USING ERRCODE = 'PR404';
        END IF;
    END IF;
    target_after := bound_name(p_orchestration, p_logical_port);
    PERFORM record_action(CASE WHEN p_bind THEN 'orchestration.bind' ELSE 'orchestration.unbind' END, p_orchestration,
                          jsonb_build_object(p_logical_port, target_before),
                          jsonb_build_object(p_logical_port, target_after));
END $$;
