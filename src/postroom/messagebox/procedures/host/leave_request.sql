-- Stop waiting for the response to a request with an idempotency key, because the instance of a program has waited too
-- long or was cancelled. If the request was taken over from a program that still waits, its response is routed to that
-- one again. The caller removes the subscriptions of the instance after that, in the same transaction.
-- Indexes: primary keys of receipts and program_subscriptions. Locks: see take_over_request.
CREATE OR REPLACE FUNCTION messagebox.leave_request___HOST__(p_unit uuid, p_instance_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    the_outcome jsonb;
    waiting jsonb;
BEGIN
    SELECT r.outcome INTO the_outcome FROM receipts r WHERE r.unit = p_unit AND r.chunk = 0 FOR NO KEY UPDATE;
    SELECT coalesce(jsonb_agg(e.program ORDER BY e.number), '[]') INTO waiting
      FROM jsonb_array_elements(the_outcome->'earlier') WITH ORDINALITY AS e (program, number)
     WHERE (e.program->>'instance_id')::uuid <> p_instance_id
       AND EXISTS (SELECT 1 FROM program_subscriptions p
                    WHERE p.service_id = (e.program->>'service_id')::uuid AND p.host_id = __HOST_ID__);
    IF (the_outcome->>'instance_id')::uuid = p_instance_id AND jsonb_array_length(waiting) > 0 THEN
        PERFORM take_over_request___HOST__(
            p_unit, (waiting->-1->>'instance_id')::uuid, NULL, NULL, (waiting->-1->>'service_id')::uuid,
            waiting->-1->>'service_name');
        waiting := waiting - -1;
    END IF;
    UPDATE receipts SET outcome = outcome || jsonb_build_object('earlier', waiting)
     WHERE unit = p_unit AND chunk = 0 AND the_outcome ? 'earlier';
END $$;
