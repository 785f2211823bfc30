-- First call for a message: takes the routing lock, refuses (PR001) if the subscriptions changed since they were
-- found, evaluates them, stores context and metadata in the spool and the body part in parts, and appends the
-- references to the active ref-count logs. Returns the number of references; 0 means nobody may receive it.
-- Locks: advisory (7001, 0) shared, until commit.
CREATE OR REPLACE FUNCTION messagebox.insert_message(
    p_batch_id uuid, p_version bigint, p_message_id uuid, p_context jsonb, p_subscription_ids bigint[],
    p_instance_ids uuid[], p_part_ids uuid[], p_body_part_id uuid, p_name text, p_content_type text, p_charset text,
    p_size bigint, p_body bytea, p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    routing record;
    references_made integer;
BEGIN
    SELECT * INTO routing FROM lock_routing();
    IF routing.version <> p_version THEN
        RAISE EXCEPTION 'the subscriptions changed' USING ERRCODE = 'PR001';
    END IF;
    references_made := evaluate_subscriptions(p_batch_id, p_message_id, p_subscription_ids, p_instance_ids, p_now);
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, published_at)
         VALUES (p_message_id, p_part_ids, p_body_part_id, p_name, p_context, p_now);
    IF p_body_part_id IS NOT NULL THEN
        PERFORM int_insert_part(p_body_part_id, p_name, p_content_type, p_charset, p_size, p_body);
    END IF;
    IF references_made > 0 THEN
        IF routing.message_log = 1 THEN
            INSERT INTO message_ref_count_log_1 VALUES (p_message_id, references_made);
        ELSE
            INSERT INTO message_ref_count_log_2 VALUES (p_message_id, references_made);
        END IF;
        IF routing.part_log = 1 THEN
            INSERT INTO part_ref_count_log_1 SELECT p, references_made FROM unnest(p_part_ids) p;
        ELSE
            INSERT INTO part_ref_count_log_2 SELECT p, references_made FROM unnest(p_part_ids) p;
        END IF;
    END IF;
    RETURN references_made;
END $$;
