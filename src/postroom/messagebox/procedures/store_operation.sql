-- Store an operation on instances, which continue_operation carries out: on the given instances, or (kind start) on the
-- messages that wait for the start of a send port, a group or an orchestration. With p_first_only it changes only the
-- message of an ordered send port that is the first one now. Returns its id. PostgreSQL fills in the login, the user of
-- the command and the reason.
-- Indexes: as int_first_number.
CREATE OR REPLACE FUNCTION messagebox.store_operation(
    p_kind text, p_target text, p_instance_ids uuid[], p_service_id uuid DEFAULT NULL, p_group_id uuid DEFAULT NULL,
    p_first_only boolean DEFAULT false
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    new_id bigint;
BEGIN
    INSERT INTO operations (kind, target, service_id, group_id, total, remaining)
    VALUES (p_kind, p_target, p_service_id, p_group_id, coalesce(cardinality(p_instance_ids), 0),
            coalesce(cardinality(p_instance_ids), 0))
    RETURNING id INTO new_id;
    INSERT INTO operation_instances (operation_id, number, instance_id, seq)
    SELECT new_id, i.number, i.instance_id, CASE WHEN p_first_only THEN int_first_number(i.instance_id) END
      FROM unnest(p_instance_ids) WITH ORDINALITY AS i (instance_id, number);
    RETURN new_id;
END $$;
