-- Store an operation on the given instances, which continue_operation carries out, and record it in the audit. Returns
-- its id. With p_first_only it terminates only the message of an ordered send port that is the first one now. p_target
-- describes the instances, as the command reports it. The pieces of the operation are recorded with the ids of the
-- instances that they changed.
-- Indexes: as store_operation.
CREATE OR REPLACE FUNCTION messagebox.start_operation(
    p_kind text, p_target text, p_instance_ids uuid[], p_first_only boolean DEFAULT false
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    new_id bigint;
BEGIN
    IF p_kind = 'start' THEN
        RAISE EXCEPTION 'only the start of a port starts this operation' USING ERRCODE = '42501';
    END IF;
    new_id := store_operation(p_kind, p_target, p_instance_ids, p_first_only => p_first_only AND p_kind = 'terminate');
    PERFORM record_action(
        'instance.' || p_kind,
        CASE cardinality(p_instance_ids) WHEN 1 THEN p_instance_ids[1]::text ELSE 'operation ' || new_id END, NULL,
        jsonb_build_object('operation', new_id, 'conditions', p_target,
                           'chosen', coalesce(cardinality(p_instance_ids), 0)));
    RETURN new_id;
END $$;
