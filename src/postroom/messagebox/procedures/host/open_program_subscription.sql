-- Create a subscription of a program with this name, or find it, and note that it is used. Returns its service id.
-- Raises 42501 if the name belongs to another host.
CREATE OR REPLACE FUNCTION messagebox.open_program_subscription___HOST__(
    p_name text, p_expire_after interval, p_max_attempts integer, p_now timestamptz DEFAULT now()
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    opened program_subscriptions;
BEGIN
    INSERT INTO program_subscriptions (service_id, host_id, name, expire_after, last_used_at, max_attempts)
    VALUES (md5('postroom-program ' || p_name)::uuid, __HOST_ID__, p_name, p_expire_after, p_now, p_max_attempts)
    ON CONFLICT (service_id) DO UPDATE
       SET expire_after = excluded.expire_after, last_used_at = excluded.last_used_at,
           max_attempts = excluded.max_attempts
    RETURNING * INTO opened;
    IF opened.host_id <> __HOST_ID__ THEN
        RAISE EXCEPTION 'the subscription % belongs to another host', p_name USING ERRCODE = '42501';
    END IF;
    RETURN opened.service_id;
END $$;
