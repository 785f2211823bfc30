-- Start or stop an enlisted send port ('port'), send port group ('group') or orchestration, with its subscriptions. The
-- subscription of a port through a group is started while both are started (SPT-13). A start resumes the messages that
-- were suspended because the service was stopped: the first p_limit at once, because publishers wait meanwhile, and the
-- others by an operation. Returns the number of those that were resumed per host, and the operation.
-- Indexes: the primary keys; as resume_stopped and resume_stopped_group.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.set_service_state(
    p_kind text, p_id uuid, p_start boolean, p_limit integer, OUT hosts jsonb, OUT operation_id bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    own_subscriptions bigint[];
    service_name text;
    service_host smallint;
    resumed bigint := 0;
BEGIN
    PERFORM change_routing();
    hosts := '{}';
    CASE p_kind
        WHEN 'port' THEN
            UPDATE send_ports p SET state = CASE WHEN p_start THEN 3 ELSE 2 END WHERE p.id = p_id
            RETURNING p.name, p.host_id, ARRAY[p.subscription_id] INTO STRICT service_name, service_host,
                      own_subscriptions;
            own_subscriptions := own_subscriptions || ARRAY(
                SELECT m.subscription_id FROM send_port_group_members m JOIN send_port_groups g ON g.id = m.group_id
                 WHERE m.port_id = p_id AND (g.state = 3 OR NOT p_start));
        WHEN 'group' THEN
            UPDATE send_port_groups g SET state = CASE WHEN p_start THEN 3 ELSE 2 END WHERE g.id = p_id
            RETURNING g.name INTO STRICT service_name;
            own_subscriptions := ARRAY(
                SELECT m.subscription_id FROM send_port_group_members m JOIN send_ports p ON p.id = m.port_id
                 WHERE m.group_id = p_id AND (p.state = 3 OR NOT p_start));
        WHEN 'orchestration' THEN
            UPDATE orchestrations o SET state = CASE WHEN p_start THEN 4 ELSE 3 END WHERE o.id = p_id
            RETURNING o.name, o.host_id, ARRAY[o.subscription_id] INTO STRICT service_name, service_host,
                      own_subscriptions;
    END CASE;
    PERFORM int_set_service_state(p_id, CASE WHEN p_start THEN 'started' ELSE 'stopped' END);
    PERFORM start_or_stop_subscription(s, CASE WHEN p_start THEN 1 ELSE 2 END::smallint)
       FROM unnest(own_subscriptions) AS s WHERE s IS NOT NULL;
    IF NOT p_start THEN
        RETURN;
    END IF;
    IF p_kind = 'group' THEN
        SELECT coalesce(sum(r.resumed_count), 0), coalesce(jsonb_object_agg(r.host_id, r.resumed_count), '{}')
          INTO resumed, hosts
          FROM resume_stopped_group(p_id, p_limit) r;
    ELSE
        resumed := resume_stopped(p_id, p_limit);
        IF resumed > 0 THEN
            hosts := jsonb_build_object(service_host, resumed);
        END IF;
    END IF;
    IF resumed = p_limit AND p_kind = 'group' THEN
        operation_id := store_operation('start', service_name, NULL, p_group_id => p_id);
    ELSIF resumed = p_limit THEN
        operation_id := store_operation('start', service_name, NULL, p_service_id => p_id);
    END IF;
END $$;
