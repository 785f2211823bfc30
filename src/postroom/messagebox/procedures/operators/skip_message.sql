-- Move the first message of an ordered send port aside, so that the messages after it are delivered, or terminate it,
-- and record it in the audit. Returns the instance that the message is now, which is gone if it was terminated. Returns
-- null if p_seq is not the number of the first message any more, or if a host is sending it.
-- Indexes and locks: as int_set_aside and terminate_instances.
CREATE OR REPLACE FUNCTION messagebox.skip_message(p_instance_id uuid, p_seq bigint, p_terminate boolean) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    state_before jsonb := int_describe_instance(p_instance_id);
    aside record;
BEGIN
    SELECT * INTO aside FROM int_set_aside(p_instance_id, p_seq);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF p_terminate THEN
        PERFORM terminate_instances(ARRAY[aside.instance_id]);
    END IF;
    INSERT INTO audit (action, target, before, after)
    VALUES (CASE WHEN p_terminate THEN 'instance.terminate' ELSE 'instance.skip' END, p_instance_id::text, state_before,
            jsonb_build_object('state', CASE WHEN p_terminate THEN 'terminated' ELSE 'suspended' END,
                               'message', aside.message_id)
            || CASE WHEN p_terminate THEN '{}' ELSE jsonb_build_object('instance', aside.instance_id) END);
    PERFORM pg_notify('postroom_' || lower(h.name), '')
       FROM send_ports p JOIN hosts h ON h.id = p.host_id WHERE p.id = p_instance_id;
    RETURN aside.instance_id;
END $$;
