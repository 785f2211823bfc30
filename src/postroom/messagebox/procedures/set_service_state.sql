-- Start or stop an enlisted send port, send port group or orchestration, with its subscriptions. The subscription of a
-- port through a group is started while both are started (SPT-13). A start resumes the messages that were suspended
-- because the service was stopped: the first p_limit at once, because publishers wait meanwhile, and the others by an
-- operation. Returns the number of those that were resumed per host, and the operation.
-- Indexes: the primary key of services, subscriptions_of_service, subscriptions_group; as resume_stopped and
-- resume_stopped_group.
-- Locks: changes the routing (advisory (7001, 0) exclusive).
CREATE OR REPLACE FUNCTION messagebox.set_service_state(
    p_id uuid, p_start boolean, p_limit integer, OUT hosts jsonb, OUT operation_id bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    service services%ROWTYPE;
    resumed bigint;
BEGIN
    PERFORM change_routing();
    hosts := '{}';
    UPDATE services s SET state = CASE WHEN p_start THEN 'started' ELSE 'stopped' END::service_state WHERE s.id = p_id
    RETURNING s.* INTO STRICT service;
    PERFORM set_subscription_state(a.id, service.state)
       FROM subscriptions a
       LEFT JOIN services o ON o.id = CASE WHEN a.group_id = p_id THEN a.service_id ELSE a.group_id END
      WHERE (a.service_id = p_id OR a.group_id = p_id) AND a.instance_id IS NULL AND a.removed_at IS NULL
        AND (o.state = 'started' OR o.id IS NULL OR NOT p_start);
    IF NOT p_start THEN
        RETURN;
    END IF;
    IF service.kind = 'send port group' THEN
        SELECT coalesce(sum(r.resumed_count), 0), coalesce(jsonb_object_agg(r.host_id, r.resumed_count), '{}')
          INTO resumed, hosts
          FROM resume_stopped_group(p_id, p_limit) r;
    ELSE
        resumed := resume_stopped(p_id, p_limit);
        IF resumed > 0 THEN
            hosts := jsonb_build_object(service.host_id, resumed);
        END IF;
    END IF;
    IF resumed = p_limit AND service.kind = 'send port group' THEN
        operation_id := store_operation('start', service.name, NULL, p_group_id => p_id);
    ELSIF resumed = p_limit THEN
        operation_id := store_operation('start', service.name, NULL, p_service_id => p_id);
    END IF;
END $$;
