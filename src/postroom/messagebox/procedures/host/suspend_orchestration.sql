-- Suspend a claimed instance with an error. It continues from its last persistence point when it is resumed. The
-- callers of its requests get a fault. Returns false if the claim was taken over.
-- Index: the primary key. Locks: the row of the instance, then see int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.suspend_orchestration___HOST__(
    p_instance_id uuid, p_claim_id uuid, p_error_code text, p_error_description text, p_now timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    UPDATE orchestration_instances
       SET claim_id = NULL, claimed_by = NULL, suspended_at = p_now, error_code = p_error_code,
           error_description = p_error_description
     WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND claim_id = p_claim_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The description may be a traceback, whose error is its first line that is not indented.
    PERFORM int_fault_instances(
        ARRAY[p_instance_id], NULL, true,
        'was suspended: ' || coalesce(CASE WHEN p_error_description LIKE 'Traceback %'
                                           THEN substring(p_error_description FROM '\n(\S[^\n]*)') END,
                                      split_part(p_error_description, chr(10), 1)));
    RETURN true;
END $$;
