-- Privileges of administrators and operators (SEC-13; see the table in docs/how-to/security.md). All privileges are
-- revoked first.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA messagebox, management FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
REVOKE ALL ON ALL TABLES IN SCHEMA messagebox, management FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA messagebox, management FROM __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;
GRANT USAGE ON SCHEMA messagebox, management TO __ADMINISTRATORS_ROLE__, __OPERATORS_ROLE__;

-- Administrators read everything. They write what a deployment, a publish and a receive location write, by name. They
-- do not get the right to create triggers (TRIGGER): the owner's functions would run them as the owner. They do not
-- write messagebox.hosts, except for what operators decide: grant_role and migrations trust the names of roles in it.
-- store_host_definition writes definitions. New hosts and new versions of the schema are the owner's.
GRANT SELECT ON ALL TABLES IN SCHEMA messagebox, management TO __ADMINISTRATORS_ROLE__;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA messagebox TO __ADMINISTRATORS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON messagebox.services, messagebox.properties, messagebox.application_properties,
    messagebox.lookup_contents TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (throttling_overrides, stopped) ON messagebox.hosts TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (group_id, group_name) ON messagebox.subscriptions TO __ADMINISTRATORS_ROLE__;
GRANT UPDATE (reset_requested), DELETE ON messagebox.streams TO __ADMINISTRATORS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON messagebox.receive_attempts TO __ADMINISTRATORS_ROLE__;
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
GRANT INSERT, UPDATE, DELETE ON messagebox.file_claims, messagebox.host_instances, messagebox.running_locations,
    messagebox.running_sinks, messagebox.open_circuits TO __ADMINISTRATORS_ROLE__;
GRANT INSERT (interchange_id, location_id, context, size, digest, body), DELETE,
    UPDATE (number, problem, size) ON messagebox.inbox TO __ADMINISTRATORS_ROLE__;
GRANT INSERT ON messagebox.inbox_fragments TO __ADMINISTRATORS_ROLE__;
GRANT USAGE ON SEQUENCE messagebox.queue_sequence, messagebox.intake_number
    TO __ADMINISTRATORS_ROLE__;

-- Operators read and call functions. They write no table: each function that changes something for them records it in
-- the audit, with the login of the session.
--
-- They see services and the queues. They do not see contexts and bodies (spool, parts, fragments), nor what is copied
-- from them: correlation values, the properties that an adapter has updated, and the entries of lookups, of which they
-- see the keys. They do not see the state of
-- orchestrations: journals, and what an instance carries over to its next journal. They do not see the options of
-- readers, which may contain secrets.
GRANT SELECT ON messagebox.message_box, messagebox.hosts, messagebox.properties, messagebox.services,
    messagebox.host_instances, messagebox.job_runs, messagebox.running_locations, messagebox.running_sinks,
    messagebox.open_circuits, messagebox.operations, messagebox.operation_instances, messagebox.routing_version,
    messagebox.correlation_types, messagebox.convoy_sets, messagebox.predicate_groups, messagebox.predicates,
    messagebox.application_properties, messagebox.instances, messagebox.program_subscriptions, messagebox.leases,
    messagebox.orchestration_messages, messagebox.lookup_contents
    TO __OPERATORS_ROLE__;
GRANT SELECT (interchange_id, location_id, number, size, problem, stored_at, stored_by) ON messagebox.inbox
    TO __OPERATORS_ROLE__;
DO $$
DECLARE
    shown record;
BEGIN
    FOR shown IN
        SELECT c.table_schema, c.table_name, string_agg(quote_ident(c.column_name), ', ') AS names
          FROM information_schema.columns c
          JOIN (VALUES ('messagebox.subscriptions', '{correlation_values,correlation_hash}'::text[]),
                       ('messagebox.work_queue', '{properties}'),
                       ('messagebox.scheduled_queue', '{properties}'),
                       ('messagebox.suspended_queue', '{properties}'),
                       ('messagebox.file_claims', '{reading}'),
                       ('messagebox.orchestration_instances', '{carried}'),
                       ('messagebox.lookup_entries', '{context,originator_sid,originator_pid,charset,body}'))
               AS h (table_name, hidden)
            ON h.table_name = c.table_schema || '.' || c.table_name AND c.column_name <> ALL (h.hidden)
         GROUP BY 1, 2
    LOOP
        EXECUTE format('GRANT SELECT (%s) ON %I.%I TO %I', shown.names, shown.table_schema, shown.table_name,
                       '__OPERATORS_ROLE__');
    END LOOP;
END $$;

-- Operators start, stop, bind, retry, resume, suspend, reroute, skip and terminate. They do not enlist: enlisting
-- creates subscriptions, which is configuration. The functions in procedures/operators record what they do. The others
-- only read.
GRANT EXECUTE ON FUNCTION
    messagebox.start_or_stop_service, messagebox.set_host_stopped, messagebox.set_location_enabled,
    messagebox.set_location_schedule, messagebox.bind_logical_port, messagebox.retry_now, messagebox.change_instances,
    messagebox.skip_message, messagebox.start_operation, messagebox.continue_operation,
    messagebox.is_of_interchange, messagebox.find_interchanges, messagebox.current_load
    TO __OPERATORS_ROLE__;

DO $$
DECLARE
    protected text;
BEGIN
    FOREACH protected IN ARRAY ARRAY['messagebox.file_claims', 'messagebox.inbox', 'messagebox.inbox_fragments',
                                     'messagebox.running_locations', 'messagebox.running_sinks',
                                     'messagebox.open_circuits', 'messagebox.host_instances',
                                     'messagebox.services', 'messagebox.receive_attempts'] LOOP
        EXECUTE format('DROP POLICY IF EXISTS administrators ON %s', protected);
        EXECUTE format('CREATE POLICY administrators ON %s TO %I USING (true) WITH CHECK (true)', protected,
                       '__ADMINISTRATORS_ROLE__');
        EXECUTE format('DROP POLICY IF EXISTS operators ON %s', protected);
        EXECUTE format('CREATE POLICY operators ON %s FOR SELECT TO %I USING (true)', protected, '__OPERATORS_ROLE__');
    END LOOP;
END $$;
