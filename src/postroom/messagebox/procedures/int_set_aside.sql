-- Move the first message of an ordered send port aside: it is suspended as the instance p_new_id, under its number, so
-- that the messages after it are delivered. It keeps its error. Returns the new instance and the message. Returns
-- nothing if p_seq is not the number of the first message any more, or if a host is sending it.
-- Indexes: as int_first_number and int_take_instances.
-- Locks: advisory (7006, hash of the instance), so that no claim is made meanwhile, and the row of the message.
CREATE OR REPLACE FUNCTION messagebox.int_set_aside(p_instance_id uuid, p_seq bigint, p_new_id uuid)
RETURNS TABLE (instance_id uuid, message_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken queue_row;
BEGIN
    PERFORM pg_advisory_xact_lock(7006, uuid_hash(p_instance_id));
    IF p_seq IS DISTINCT FROM int_first_number(p_instance_id) THEN
        RETURN;
    END IF;
    FOREACH taken IN ARRAY
        coalesce(int_take_instances(ARRAY[p_instance_id], p_suspended => true, p_seq => p_seq), '{}')
    LOOP
        taken.instance_id := p_new_id;
        taken.task := 'deliver';
        taken.valid_from := NULL;
        -- The start of the port does not resume it.
        taken := int_fail(taken, coalesce(taken.suspended_at, now()),
                          CASE WHEN taken.cause = 'failure' THEN taken.cause ELSE 'operator' END,
                          coalesce(taken.resumable, true), coalesce(taken.error_code, 'OPERATOR'),
                          coalesce(taken.error_description, 'Moved aside by an operator.'));
        PERFORM int_suspend(ARRAY[taken]);
        RETURN QUERY SELECT taken.instance_id, taken.message_id;
    END LOOP;
END $$;
