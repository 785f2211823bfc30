-- Start or stop an enlisted send port ('port'), send port group ('group') or orchestration, and record it in the audit.
-- Returns what set_service_state returns. Raises PR404 for an unknown one, 42501 for one that is not enlisted, because
-- enlisting is configuration, and PR409 if it is in that state already.
-- Indexes and locks: as set_service_state.
CREATE OR REPLACE FUNCTION messagebox.start_or_stop_service(
    p_kind text, p_id uuid, p_start boolean, p_limit integer, OUT hosts jsonb, OUT operation_id bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    service_name text;
    state_before text;
    state_after text := CASE WHEN p_start THEN 'started' ELSE 'stopped' END;
BEGIN
    PERFORM change_routing();
    SELECT s.name, s.state INTO service_name, state_before
      FROM (SELECT p.id, 'port' AS kind, p.name, (ARRAY['bound', 'stopped', 'started'])[p.state] AS state
              FROM send_ports p
            UNION ALL
            SELECT g.id, 'group', g.name, (ARRAY['bound', 'stopped', 'started'])[g.state] FROM send_port_groups g
            UNION ALL
            SELECT o.id, 'orchestration', o.name, (ARRAY['unbound', 'bound', 'stopped', 'started'])[o.state]
              FROM orchestrations o) s
     WHERE s.kind = p_kind AND s.id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no % %', p_kind, p_id USING ERRCODE = 'PR404';
    ELSIF state_before IN ('unbound', 'bound') THEN
        RAISE EXCEPTION '% % is not enlisted', p_kind, service_name USING ERRCODE = '42501';
    ELSIF state_before = state_after THEN
        RAISE EXCEPTION '% % is already %', p_kind, service_name, state_after USING ERRCODE = 'PR409';
    END IF;
    SELECT s.hosts, s.operation_id INTO hosts, operation_id FROM set_service_state(p_kind, p_id, p_start, p_limit) s;
    PERFORM record_action(p_kind || CASE WHEN p_start THEN '.start' ELSE '.stop' END, service_name,
                          jsonb_build_object('state', state_before), jsonb_build_object('state', state_after));
END $$;
