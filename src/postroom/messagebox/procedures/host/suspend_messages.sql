-- Move messages of a claim into the suspended queue, with the reason. p_properties: context properties to update.
-- Returns how many this claim still had. A message with an id in p_instance_ids leaves the instance of its ordered send
-- port and becomes that instance, so that the messages after it do not wait.
-- Index: as int_take_claimed.
CREATE OR REPLACE FUNCTION messagebox.suspend_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_error_codes text[], p_error_descriptions text[], p_adapters text[],
    p_uris text[], p_resumable boolean[], p_properties jsonb[], p_instance_ids uuid[],
    p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    suspension record;
    failed queue_row;
    suspended queue_row[];
BEGIN
    FOR suspension IN
        SELECT t AS taken, r.*
          FROM unnest(int_take_claimed___HOST__(p_claim_id, p_seqs)) t
          JOIN unnest(p_seqs, p_error_codes, p_error_descriptions, p_adapters, p_uris, p_resumable, p_properties,
                      p_instance_ids)
               AS r (seq, error_code, error_description, adapter, uri, resumable, properties, instance_id)
            ON r.seq = t.seq
    LOOP
        failed := int_fail(suspension.taken, p_now, 'failure', suspension.resumable, suspension.error_code,
                           suspension.error_description);
        failed.adapter := suspension.adapter;
        failed.uri := suspension.uri;
        IF suspension.properties IS NOT NULL THEN
            failed.properties := coalesce(failed.properties, '{}') || suspension.properties;
        END IF;
        IF suspension.instance_id IS NOT NULL THEN
            failed.instance_id := suspension.instance_id;
            failed.task := 'deliver';
        END IF;
        suspended := suspended || failed;
    END LOOP;
    RETURN int_suspend(suspended);
END $$;
