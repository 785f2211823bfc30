-- Privileges of administrators and operators (SEC-13; see the table in docs/how-to/security.md). All privileges are
-- revoked first.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA messagebox FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
REVOKE ALL ON ALL TABLES IN SCHEMA messagebox, management FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA messagebox, management FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
GRANT USAGE ON SCHEMA messagebox, management TO __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;

-- Administrators read everything. They write what a deployment, a publish and a receive location write, by name. They
-- do not get the right to create triggers (TRIGGER): the owner's functions would run them as the owner. They do not
-- write management.hosts, except for the thresholds: grant_role and migrations trust the names of roles in it. New
-- hosts and new versions of the schema are the owner's.
GRANT SELECT ON ALL TABLES IN SCHEMA messagebox, management TO __ADMINISTRATORS_ROLE__;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA messagebox TO __ADMINISTRATORS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON management.applications, management.orchestrations, management.properties,
    management.receive_ports, management.receive_locations, management.send_ports, management.send_port_groups,
    management.send_port_group_members, management.removed_services, management.handlers,
    messagebox.application_properties TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (throttling, throttling_overrides, stopped, isolated) ON management.hosts TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (polling_interval, dequeue_threads) ON management.service_classes TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (group_id, group_name) ON messagebox.subscriptions TO __ADMINISTRATORS_ROLE__;
-- The audit is append-only. PostgreSQL fills the login, the time and the reason.
GRANT INSERT (os_user, action, target, before, after) ON management.audit
    TO __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
GRANT SELECT ON management.audit TO __OPERATORS_ROLE__;
GRANT SELECT ON management.operations, messagebox.operation_instances TO __OPERATORS_ROLE__;
GRANT UPDATE (reset_requested) ON messagebox.streams TO __ADMINISTRATORS_ROLE__;
-- An administrator's process publishes and receives like a host, for every location, and may name the originator.
GRANT INSERT (message_id, part_ids, body_part_id, body_part_name, context, originator_sid, originator_pid,
              only_reference)
    ON messagebox.spool TO __ADMINISTRATORS_ROLE__;
GRANT INSERT (part_id, name, content_type, charset, size, body, only_reference) ON messagebox.parts
    TO __ADMINISTRATORS_ROLE__;
GRANT INSERT ON messagebox.fragments TO __ADMINISTRATORS_ROLE__;
GRANT INSERT (message_id, delta) ON messagebox.message_ref_count_log_1, messagebox.message_ref_count_log_2
    TO __ADMINISTRATORS_ROLE__;
GRANT INSERT (part_id, delta) ON messagebox.part_ref_count_log_1, messagebox.part_ref_count_log_2
    TO __ADMINISTRATORS_ROLE__;
GRANT INSERT, DELETE ON messagebox.message_properties, messagebox.message_predicates TO __ADMINISTRATORS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON messagebox.file_claims, management.host_instances, management.running_locations,
    management.running_sinks, management.open_circuits TO __ADMINISTRATORS_ROLE__;
GRANT INSERT (interchange_id, location_id, context, size, digest, body), DELETE,
    UPDATE (number, problem, size, attempts, attempts_since) ON messagebox.inbox TO __ADMINISTRATORS_ROLE__;
GRANT INSERT ON messagebox.inbox_fragments TO __ADMINISTRATORS_ROLE__;
GRANT USAGE ON SEQUENCE messagebox.queue_sequence, messagebox.file_claim_number, messagebox.inbox_number
    TO __ADMINISTRATORS_ROLE__;

-- Operators see deployed artifacts and the queues. They do not see contexts and bodies (spool, parts, fragments), nor
-- correlation values, which are copied from contexts. They do not see definitions that may contain secrets: the
-- configuration of adapters, and the definitions of applications.
GRANT SELECT ON management.message_box, management.schema_version, management.service_classes, management.hosts,
    management.handlers, management.properties, management.receive_ports, management.send_port_groups,
    management.send_port_group_members, management.removed_services, management.host_instances, management.job_runs,
    management.running_locations, management.running_sinks, management.open_circuits, messagebox.routing_version,
    messagebox.correlation_types, messagebox.convoy_sets, messagebox.predicate_groups, messagebox.predicates,
    messagebox.application_properties, messagebox.file_claims,
    messagebox.work_queue, messagebox.scheduled_queue, messagebox.suspended_queue, messagebox.instances,
    messagebox.program_subscriptions, messagebox.leases, management.orchestrations, messagebox.orchestration_instances,
    messagebox.orchestration_messages
    TO __OPERATORS_ROLE__;
GRANT SELECT (id, name, applied_at) ON management.applications TO __OPERATORS_ROLE__;
GRANT SELECT (interchange_id, location_id, number, size, problem, stored_at, stored_by) ON messagebox.inbox
    TO __OPERATORS_ROLE__;
DO $$
DECLARE
    shown record;
BEGIN
    FOR shown IN
        SELECT c.table_schema, c.table_name, string_agg(quote_ident(c.column_name), ', ') AS names
          FROM information_schema.columns c
         WHERE c.table_name IN ('send_ports', 'receive_locations', 'subscriptions')
           AND c.table_schema IN ('management', 'messagebox')
           AND c.column_name NOT IN ('adapter', 'backup_adapter', 'correlation_values', 'correlation_hash')
         GROUP BY 1, 2
    LOOP
        EXECUTE format('GRANT SELECT (%s) ON %I.%I TO %I', shown.names, shown.table_schema, shown.table_name,
                       '__OPERATORS_ROLE__');
    END LOOP;
END $$;

-- Operators start, stop, retry, resume, suspend, reroute and terminate. They do not enlist: enlisting creates
-- subscriptions, which is configuration.
GRANT EXECUTE ON FUNCTION
    messagebox.change_routing, messagebox.start_or_stop_subscription, messagebox.resume_stopped,
    messagebox.resume_stopped_group, messagebox.start_operation, messagebox.continue_operation,
    messagebox.retry_now, messagebox.resume_instances, messagebox.suspend_instances,
    messagebox.reroute_instances, messagebox.terminate_instances, messagebox.is_of_interchange,
    messagebox.find_interchanges, messagebox.current_load
    TO __OPERATORS_ROLE__;
GRANT UPDATE (state) ON management.send_ports, management.send_port_groups, management.orchestrations
    TO __OPERATORS_ROLE__;
GRANT UPDATE (enabled, schedule) ON management.receive_locations TO __OPERATORS_ROLE__;
GRANT UPDATE (stopped) ON management.hosts TO __OPERATORS_ROLE__;

DO $$
DECLARE
    protected text;
BEGIN
    ALTER TABLE management.send_port_groups ENABLE ROW LEVEL SECURITY;
    FOREACH protected IN ARRAY ARRAY['messagebox.file_claims', 'messagebox.inbox', 'messagebox.inbox_fragments',
                                     'management.running_locations', 'management.running_sinks',
                                     'management.open_circuits', 'management.host_instances',
                                     'management.send_ports', 'management.send_port_groups',
                                     'management.receive_locations', 'management.orchestrations'] LOOP
        EXECUTE format('DROP POLICY IF EXISTS administrators ON %s', protected);
        EXECUTE format('CREATE POLICY administrators ON %s TO %I USING (true) WITH CHECK (true)', protected,
                       '__ADMINISTRATORS_ROLE__');
        EXECUTE format('DROP POLICY IF EXISTS operators ON %s', protected);
        EXECUTE format('CREATE POLICY operators ON %s FOR SELECT TO %I USING (true)', protected, '__OPERATORS_ROLE__');
    END LOOP;
END $$;
-- Operators can start and stop an enlisted port, group or orchestration. They cannot unenlist it.
DROP POLICY IF EXISTS operators_start_and_stop ON management.send_ports;
CREATE POLICY operators_start_and_stop ON management.send_ports FOR UPDATE TO __OPERATORS_ROLE__
    USING (state <> 1) WITH CHECK (state <> 1);
DROP POLICY IF EXISTS operators_start_and_stop ON management.send_port_groups;
CREATE POLICY operators_start_and_stop ON management.send_port_groups FOR UPDATE TO __OPERATORS_ROLE__
    USING (state <> 1) WITH CHECK (state <> 1);
DROP POLICY IF EXISTS operators_start_and_stop ON management.orchestrations;
CREATE POLICY operators_start_and_stop ON management.orchestrations FOR UPDATE TO __OPERATORS_ROLE__
    USING (state > 2) WITH CHECK (state > 2);
DROP POLICY IF EXISTS operators_enable_and_disable ON management.receive_locations;
CREATE POLICY operators_enable_and_disable ON management.receive_locations FOR UPDATE TO __OPERATORS_ROLE__
    USING (true) WITH CHECK (true);
