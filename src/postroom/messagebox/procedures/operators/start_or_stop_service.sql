-- Start or stop an enlisted send port, send port group or orchestration, and record it in the audit. Returns what
-- set_service_state returns. Raises PR404 for an unknown one, 42501 for one that is not enlisted, because enlisting is
-- configuration, and PR409 if it is in that state already.
-- Indexes and locks: as set_service_state.
CREATE OR REPLACE FUNCTION messagebox.start_or_stop_service(
    p_id uuid, p_start boolean, p_limit integer, OUT hosts jsonb, OUT operation_id bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    service services%ROWTYPE;
    state_after text := CASE WHEN p_start THEN 'started' ELSE 'stopped' END;
BEGIN
    PERFORM change_routing();
    SELECT * INTO service FROM services s WHERE s.id = p_id AND s.kind <> 'location' AND s.removed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no service %', p_id USING ERRCODE = 'PR404';
    ELSIF service.state = 'bound' THEN
        RAISE EXCEPTION '% % is not enlisted', service.kind, service.name USING ERRCODE = '42501';
    ELSIF service.state::text = state_after THEN
        RAISE EXCEPTION '% % is already %', service.kind, service.name, state_after USING ERRCODE = 'PR409';
    END IF;
    SELECT s.hosts, s.operation_id INTO hosts, operation_id FROM set_service_state(p_id, p_start, p_limit) s;
    PERFORM record_action(
        CASE service.kind WHEN 'send port' THEN 'port' WHEN 'send port group' THEN 'group' ELSE service.kind END
        || CASE WHEN p_start THEN '.start' ELSE '.stop' END, service.name,
        jsonb_build_object('state', service.state), jsonb_build_object('state', state_after));
END $$;
