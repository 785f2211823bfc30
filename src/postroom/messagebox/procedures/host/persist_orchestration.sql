-- A persistence point of a claimed instance: append to its journal, and mark the messages that it has received. Returns
-- false, and changes nothing, if the claim was taken over or the journal has another length. With p_release the
-- instance is not claimed any more; if a message came in the meantime, it is still ready.
-- Indexes: the primary keys. Locks: the row of the instance.
CREATE OR REPLACE FUNCTION messagebox.persist_orchestration___HOST__(
    p_instance_id uuid, p_claim_id uuid, p_journal_length integer, p_turns jsonb, p_consumed bigint[], p_wake_at timestamptz,
    p_release boolean
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    UPDATE orchestration_instances
       SET journal_length = p_journal_length + CASE WHEN p_turns IS NULL THEN 0 ELSE 1 END,
           wake_at = p_wake_at,
           claim_id = CASE WHEN p_release THEN NULL ELSE p_claim_id END,
           claimed_by = CASE WHEN p_release THEN NULL ELSE claimed_by END
     WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND claim_id = p_claim_id
       AND journal_length = p_journal_length;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_turns IS NOT NULL THEN
        INSERT INTO orchestration_journal (instance_id, number, turns) VALUES (p_instance_id, p_journal_length + 1, p_turns);
    END IF;
    UPDATE orchestration_messages SET consumed_in = p_journal_length + 1
     WHERE instance_id = p_instance_id AND seq = ANY (p_consumed);
    RETURN true;
END $$;
