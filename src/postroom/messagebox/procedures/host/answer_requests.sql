-- Note that claimed instances have answered requests, or sent them on to others who answer them: their callers get no
-- fault any more. The arrays have an instance and a message that it has received. Called in the transaction that
-- stores its persistence point.
-- Indexes: the primary keys of orchestration_instances and orchestration_messages. Locks: the rows of the messages.
CREATE OR REPLACE FUNCTION messagebox.answer_requests___HOST__(p_instance_ids uuid[], p_message_ids uuid[])
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    UPDATE orchestration_messages m SET answered = true
      FROM unnest(p_instance_ids, p_message_ids) AS a (instance_id, message_id)
      JOIN orchestration_instances i ON i.instance_id = a.instance_id AND i.host_id = __HOST_ID__
     WHERE m.instance_id = a.instance_id AND m.message_id = a.message_id;
$$;
