-- Record in the audit what an operator has done. Operations continue under the login that started them. Only the
-- owner's functions call it, inside the transaction of the action.
CREATE OR REPLACE FUNCTION management.record_action(
    p_action text, p_target text, p_before jsonb, p_after jsonb, p_login text DEFAULT session_user,
    p_os_user text DEFAULT nullif(current_setting('postroom.os_user', true), ''),
    p_reason text DEFAULT nullif(current_setting('postroom.reason', true), '')
) RETURNS void
LANGUAGE sql VOLATILE SET search_path = management, pg_temp AS $$
    INSERT INTO audit (login, os_user, action, target, reason, before, after)
    VALUES (p_login, p_os_user, p_action, p_target, p_reason, p_before, p_after);
$$;
