-- Move the first message of an ordered send port aside, so that the messages after it are delivered, and record it in
-- the audit. p_new_id is the instance that the message becomes. The caller derives it like the host, so that a receiver
-- recognises a repeat. Returns false if p_seq is not the number of the first message any more, or if a host is sending
-- it. Raises PR409 if there is an instance p_new_id.
-- Indexes and locks: as int_set_aside.
CREATE OR REPLACE FUNCTION messagebox.skip_message(p_instance_id uuid, p_seq bigint, p_new_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    state_before jsonb := int_describe_instance(p_instance_id);
    aside record;
BEGIN
    IF EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = p_new_id) THEN
        RAISE EXCEPTION 'there is an instance % already', p_new_id USING ERRCODE = 'PR409';
    END IF;
    SELECT * INTO aside FROM int_set_aside(p_instance_id, p_seq, p_new_id);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM record_action(
        'instance.skip', p_instance_id::text, state_before,
        jsonb_build_object('state', 'suspended', 'message', aside.message_id, 'instance', p_new_id));
    PERFORM pg_notify('postroom_' || lower(h.name), '')
       FROM services s JOIN hosts h ON h.id = s.host_id WHERE s.id = p_instance_id;
    RETURN true;
END $$;
