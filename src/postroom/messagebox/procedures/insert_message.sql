-- Publish a message: route it (see route_message), store context and metadata in the spool and the body part in parts.
-- insert_part stores its other parts. The originator is accepted from a trusted login only. Returns the number of
-- references.
-- Locks: advisory (7001, 0) shared, until commit.
CREATE OR REPLACE FUNCTION messagebox.insert_message(
    p_batch_id uuid, p_version bigint, p_message_id uuid, p_context jsonb, p_subscription_ids bigint[],
    p_instance_ids uuid[], p_part_ids uuid[], p_body_part_id uuid, p_name text, p_content_type text, p_charset text,
    p_size bigint, p_body bytea, p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    references_made integer;
BEGIN
    references_made := route_message(p_batch_id, p_version, p_message_id, p_part_ids, p_subscription_ids,
                                     p_instance_ids, p_now);
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, published_at, originator_sid,
                       originator_pid)
    SELECT p_message_id, p_part_ids, p_body_part_id, p_name, p_context, p_now,
           CASE WHEN t.trusted THEN originator_in(p_context, 'BTS#OriginatorSID') END,
           CASE WHEN t.trusted THEN originator_in(p_context, 'BTS#OriginatorPID') END
      FROM (SELECT is_trusted() AS trusted) t;
    IF p_body_part_id IS NOT NULL THEN
        PERFORM int_insert_part(p_body_part_id, p_name, p_content_type, p_charset, p_size, p_body);
    END IF;
    RETURN references_made;
END $$;
