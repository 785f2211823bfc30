-- Move messages of a claim into the scheduled queue for another attempt, and increment their attempts. p_to_backup: the
-- next attempt is the first one of the backup transport. p_properties: context properties to update. Returns how many
-- this claim still had. Delays are relative to the server's time, because the clocks of hosts may differ.
-- Index: as int_take_claimed.
CREATE OR REPLACE FUNCTION messagebox.retry_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_delays interval[], p_error_codes text[], p_error_descriptions text[],
    p_to_backup boolean[], p_properties jsonb[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    retry record;
    failed queue_row;
    scheduled queue_row[];
BEGIN
    FOR retry IN
        SELECT t AS taken, r.*
          FROM unnest(int_take_claimed___HOST__(p_claim_id, p_seqs)) t
          JOIN unnest(p_seqs, p_delays, p_error_codes, p_error_descriptions, p_to_backup, p_properties)
               AS r (seq, delay, error_code, error_description, to_backup, properties) ON r.seq = t.seq
    LOOP
        failed := retry.taken;
        failed.attempt := failed.attempt + 1;
        IF retry.to_backup THEN
            failed.primary_attempts := failed.attempt;
        END IF;
        IF retry.properties IS NOT NULL THEN
            failed.properties := coalesce(failed.properties, '{}') || retry.properties;
        END IF;
        failed.valid_from := p_now + retry.delay;
        failed.error_code := retry.error_code;
        failed.error_description := retry.error_description;
        scheduled := scheduled || failed;
    END LOOP;
    RETURN int_schedule(scheduled);
END $$;
