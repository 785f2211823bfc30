-- Extend the lease of a program's claim, from now on. Returns false if it has expired.
CREATE OR REPLACE FUNCTION messagebox.extend_lease___HOST__(
    p_claim_id uuid, p_lease interval, p_now timestamptz DEFAULT clock_timestamp()
) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH extended AS (
        UPDATE leases l SET expires_at = p_now + p_lease, length = p_lease
         WHERE l.claim_id = p_claim_id
           AND EXISTS (SELECT 1 FROM program_subscriptions u
                        WHERE u.service_id = l.service_id AND u.host_id = __HOST_ID__)
        RETURNING 1)
    SELECT EXISTS (SELECT 1 FROM extended);
$$;
