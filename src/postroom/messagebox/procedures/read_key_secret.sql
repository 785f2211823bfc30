-- Return the secret from which the units of a login's idempotency keys derive. It is that of the host that the login
-- publishes for, if the login runs this host. Otherwise it is that of the first host that the login runs. An
-- administrator runs no host, and gets that of the host that it publishes for.
-- Indexes: primary keys of hosts and key_secrets.
CREATE OR REPLACE FUNCTION messagebox.read_key_secret(p_host_id smallint) RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT k.secret FROM key_secrets k
     WHERE k.host_id = ANY (own_hosts()) OR (k.host_id = p_host_id AND own_hosts() = '{}')
     ORDER BY k.host_id <> p_host_id, k.host_id LIMIT 1;
$$;
