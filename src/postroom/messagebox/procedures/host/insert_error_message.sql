-- Replace a message of a claim, at a port that routes failures, with an error message that has the same parts. The
-- caller routes the error message in the same transaction. Publisher and originator are those of the original (FMR-05):
-- everything except the report in p_context is taken from the original, so that no host can publish on behalf of
-- another. Returns the ids of the parts, or null if the claim was taken over. A routing failure report about the
-- instance stays, because the error message refers to it. It records where the message was received (p_adapter, p_uri).
-- Indexes: as int_take_claimed; spool's primary key, suspended_queue_reports, suspended_queue_instance.
CREATE OR REPLACE FUNCTION messagebox.insert_error_message___HOST__(
    p_claim_id uuid, p_seq bigint, p_error_id uuid, p_context jsonb, p_adapter text, p_uri text,
    p_now timestamptz DEFAULT now()
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    taken CONSTANT queue_row[] := int_take_claimed___HOST__(p_claim_id, ARRAY[p_seq]);
    failed CONSTANT queue_row := taken[1];
    shared uuid[];
BEGIN
    IF taken IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, published_at, published_by,
                       originator_sid, originator_pid)
    SELECT p_error_id, s.part_ids, s.body_part_id, s.body_part_name, error_context(s.context, p_context), p_now,
           s.published_by, s.originator_sid, s.originator_pid
      FROM spool s WHERE s.message_id = failed.message_id
    RETURNING part_ids INTO STRICT shared;
    UPDATE suspended_queue
       SET related_instance_id = NULL, last_related_instance_id = NULL, adapter = p_adapter, uri = p_uri
     WHERE cause = 'routing failure report' AND instance_id = report_of(failed.instance_id);
    PERFORM int_count_in_logs(ARRAY[failed.message_id]);
    PERFORM int_finish(taken);
    RETURN shared;
END $$;
