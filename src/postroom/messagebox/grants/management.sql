-- Privileges on the schema management. The files of the other roles, which come first, have revoked all of them.

-- A host reads the definitions of its own ports, locations, orchestrations and lookups. A port, location or lookup that
-- was moved is read by its old host, too, as long as this host has messages of it.
GRANT SELECT ON management.schema_version, management.service_classes, management.receive_ports,
    management.receive_locations, management.send_ports, management.orchestrations, management.bindings,
    management.lookups
    TO __HOSTS_ROLE__;
ALTER TABLE management.send_ports ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_ports ON management.send_ports;
CREATE POLICY own_ports ON management.send_ports FOR SELECT TO __HOSTS_ROLE__
    USING (id = ANY ((SELECT messagebox.own_services())::uuid[]));
ALTER TABLE management.orchestrations ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_orchestrations ON management.orchestrations;
CREATE POLICY own_orchestrations ON management.orchestrations FOR SELECT TO __HOSTS_ROLE__
    USING (messagebox.runs_host(host_id));
ALTER TABLE management.lookups ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_lookups ON management.lookups;
CREATE POLICY own_lookups ON management.lookups FOR SELECT TO __HOSTS_ROLE__
    USING (id = ANY ((SELECT messagebox.own_services())::uuid[]));
ALTER TABLE management.receive_locations ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON management.receive_locations;
CREATE POLICY own_locations ON management.receive_locations FOR SELECT TO __HOSTS_ROLE__
    USING (id = ANY ((SELECT messagebox.own_services())::uuid[]));
ALTER TABLE management.receive_ports ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_receive_ports ON management.receive_ports;
CREATE POLICY own_receive_ports ON management.receive_ports FOR SELECT TO __HOSTS_ROLE__
    USING (id IN (SELECT receive_port_id FROM management.receive_locations));

-- Administrators write what a deployment writes.
GRANT INSERT, UPDATE, DELETE ON management.applications, management.orchestrations, management.lookups,
    management.receive_ports, management.receive_locations, management.send_ports, management.send_port_groups,
    management.send_port_group_members, management.bindings TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (polling_interval, dequeue_threads) ON management.service_classes TO __ADMINISTRATORS_ROLE__;
-- The audit is append-only. PostgreSQL fills the login, the time and the reason.
GRANT INSERT (os_user, action, target, before, after) ON management.audit TO __ADMINISTRATORS_ROLE__;

-- Operators do not see definitions that may contain secrets: those of send ports and locations, which have adapters,
-- and the hosts of applications.
GRANT SELECT ON management.schema_version, management.service_classes, management.receive_ports,
    management.send_port_groups, management.send_port_group_members, management.orchestrations, management.bindings,
    management.lookups, management.audit TO __OPERATORS_ROLE__;
GRANT SELECT (id, name, applied_at) ON management.applications TO __OPERATORS_ROLE__;
DO $$
DECLARE
    shown record;
    protected text;
BEGIN
    FOR shown IN
        SELECT c.table_name, string_agg(quote_ident(c.column_name), ', ') AS names
          FROM information_schema.columns c
         WHERE c.table_schema = 'management' AND c.table_name IN ('send_ports', 'receive_locations')
           AND c.column_name <> 'definition'
         GROUP BY 1
    LOOP
        EXECUTE format('GRANT SELECT (%s) ON management.%I TO %I', shown.names, shown.table_name, '__OPERATORS_ROLE__');
    END LOOP;
    FOREACH protected IN ARRAY ARRAY['send_ports', 'receive_ports', 'receive_locations', 'orchestrations',
                                     'lookups'] LOOP
        EXECUTE format('DROP POLICY IF EXISTS administrators ON management.%I', protected);
        EXECUTE format('CREATE POLICY administrators ON management.%I TO %I USING (true) WITH CHECK (true)', protected,
                       '__ADMINISTRATORS_ROLE__');
        EXECUTE format('DROP POLICY IF EXISTS operators ON management.%I', protected);
        EXECUTE format('CREATE POLICY operators ON management.%I FOR SELECT TO %I USING (true)', protected,
                       '__OPERATORS_ROLE__');
    END LOOP;
END $$;
