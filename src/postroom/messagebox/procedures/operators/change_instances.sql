-- Resume, reroute, suspend or terminate instances, and record those that were changed in the audit. Returns them, and
-- the name of the host that gets a resumed or rerouted one. Instances whose state does not allow it are skipped.
-- Indexes and locks: as the function of the action.
CREATE OR REPLACE FUNCTION messagebox.change_instances(p_action text, p_instance_ids uuid[])
RETURNS TABLE (instance_id uuid, host text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    state_before jsonb;
    changed uuid[];
    host_ids smallint[];
    state_after text := CASE p_action WHEN 'suspend' THEN 'suspended' WHEN 'terminate' THEN 'terminated'
                                      ELSE 'ready to run' END;
BEGIN
    IF cardinality(p_instance_ids) = 1 THEN
        state_before := int_describe_instance(p_instance_ids[1]);
    END IF;
    CASE p_action
        WHEN 'resume' THEN
            SELECT array_agg(r.instance_id), array_agg(r.host_id) INTO changed, host_ids
              FROM (SELECT DISTINCT * FROM resume_instances(p_instance_ids)) r;
        WHEN 'reroute' THEN
            SELECT array_agg(r.instance_id), array_agg(r.host_id) INTO changed, host_ids
              FROM (SELECT DISTINCT * FROM reroute_instances(p_instance_ids)) r;
        WHEN 'suspend' THEN
            SELECT array_agg(DISTINCT r) INTO changed FROM suspend_instances(p_instance_ids) r;
        WHEN 'terminate' THEN
            SELECT array_agg(DISTINCT r) INTO changed FROM terminate_instances(p_instance_ids) r;
    END CASE;
    IF cardinality(p_instance_ids) = 1 AND changed IS NOT NULL THEN
        PERFORM record_action('instance.' || p_action, changed[1]::text, state_before,
                              jsonb_build_object('state', state_after));
    ELSIF changed IS NOT NULL THEN
        PERFORM record_action(
            'instance.' || p_action, to_char(cardinality(changed), 'FM999,999,999') || ' instances', NULL,
            jsonb_build_object('instances', cardinality(changed), 'state', state_after, 'ids', to_jsonb(changed)));
    END IF;
    RETURN QUERY SELECT c.instance_id, h.name
                   FROM unnest(changed, host_ids) AS c (instance_id, host_id) LEFT JOIN hosts h ON h.id = c.host_id;
END $$;
