-- Privileges of all hosts. A host can insert messages directly, and reads them only through its own procedures. Only
-- the owner can call internal procedures. All privileges are revoked first, so a privilege that is removed from this
-- file is gone after the next migration.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA messagebox, management FROM PUBLIC, __HOSTS_ROLE__;
REVOKE ALL ON ALL TABLES IN SCHEMA messagebox, management FROM __HOSTS_ROLE__, __TRUSTED_ROLE__;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA messagebox, management FROM __HOSTS_ROLE__, __TRUSTED_ROLE__;
GRANT USAGE ON SCHEMA messagebox, management TO __HOSTS_ROLE__;
GRANT EXECUTE ON FUNCTION
    messagebox.lock_routing, messagebox.find_subscriptions, messagebox.predicate_holds, messagebox.insert_message,
    messagebox.addressees, messagebox.take_receipts, messagebox.read_receipts,
    messagebox.record_outcome, messagebox.record_digests, messagebox.report_of, messagebox.serves_location,
    messagebox.read_key_secret, messagebox.runs_host, messagebox.own_hosts, messagebox.own_locations,
    messagebox.own_services,
    messagebox.current_load, messagebox.measure_tables, messagebox.is_trusted, messagebox.insert_part,
    messagebox.flip_ref_count_log,
    messagebox.fold_ref_count_log, messagebox.message_cleanup, messagebox.record_job_run, messagebox.parts_cleanup,
    messagebox.purge_subscriptions, messagebox.expire_program_subscriptions, messagebox.dead_processes_cleanup,
    messagebox.operate_on_instances, messagebox.continue_operation, messagebox.purge_receipts,
    messagebox.advance_receipt_clock, messagebox.find_stalled_sessions, messagebox.terminate_stalled_session,
    messagebox.find_instance_subscriptions, messagebox.lock_instance_subscriptions, messagebox.locate_convoy_instances,
    messagebox.lock_ordered_instances,
    messagebox.read_lookup, messagebox.read_lookup_entry,
    messagebox.start_split, messagebox.split_progress, messagebox.start_stream, messagebox.start_stream_batch
    TO __HOSTS_ROLE__;

-- published_by and published_at are not in the grant: PostgreSQL fills them, the first from the login. Only trusted
-- hosts can write the originator (ADR 0034).
GRANT INSERT (message_id, part_ids, body_part_id, body_part_name, context, only_reference) ON messagebox.spool
    TO __HOSTS_ROLE__;
GRANT INSERT (originator_sid, originator_pid) ON messagebox.spool TO __TRUSTED_ROLE__;
GRANT INSERT (part_id, name, content_type, charset, size, body, only_reference) ON messagebox.parts TO __HOSTS_ROLE__;
GRANT INSERT ON messagebox.fragments, messagebox.message_properties, messagebox.message_predicates TO __HOSTS_ROLE__;
-- A host counts for its own transactions only: counted_in is not in the grant.
GRANT INSERT (message_id, delta) ON messagebox.message_ref_count_log_1, messagebox.message_ref_count_log_2
    TO __HOSTS_ROLE__;
GRANT INSERT (part_id, delta) ON messagebox.part_ref_count_log_1, messagebox.part_ref_count_log_2 TO __HOSTS_ROLE__;
GRANT SELECT, DELETE ON messagebox.message_properties, messagebox.message_predicates TO __HOSTS_ROLE__;
GRANT USAGE ON SEQUENCE messagebox.queue_sequence, messagebox.intake_number
    TO __HOSTS_ROLE__;

-- For the routing index in memory.
GRANT SELECT ON messagebox.routing_version, messagebox.predicate_groups,
    messagebox.predicates, messagebox.application_properties, messagebox.active_ref_count_log,
    messagebox.correlation_types, messagebox.convoy_sets TO __HOSTS_ROLE__;
-- Correlation values are values of messages. A publisher gets only those that match the hashes of its own messages,
-- from find_instance_subscriptions.
DO $$
BEGIN
    EXECUTE (SELECT format('GRANT SELECT (%s) ON messagebox.subscriptions TO %I',
                           string_agg(quote_ident(column_name), ', '), '__HOSTS_ROLE__')
               FROM information_schema.columns
              WHERE table_schema = 'messagebox' AND table_name = 'subscriptions'
                AND column_name NOT IN ('correlation_values', 'correlation_hash'));
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON messagebox.file_claims TO __HOSTS_ROLE__;
-- The content of an inbox row does not change after the insert. PostgreSQL fills stored_by from the login.
GRANT SELECT, DELETE ON messagebox.inbox TO __HOSTS_ROLE__;
GRANT INSERT (interchange_id, location_id, context, size, digest, body) ON messagebox.inbox TO __HOSTS_ROLE__;
GRANT UPDATE (number, problem, size) ON messagebox.inbox TO __HOSTS_ROLE__;
GRANT SELECT, INSERT ON messagebox.inbox_fragments TO __HOSTS_ROLE__;
GRANT SELECT, INSERT, UPDATE, DELETE ON messagebox.receive_attempts TO __HOSTS_ROLE__;
GRANT SELECT ON messagebox.message_box, messagebox.hosts, messagebox.properties, messagebox.services,
    messagebox.host_instances, messagebox.job_runs TO __HOSTS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON messagebox.host_instances TO __HOSTS_ROLE__;
GRANT SELECT, INSERT, UPDATE, DELETE ON messagebox.running_locations TO __HOSTS_ROLE__;
GRANT SELECT, INSERT, UPDATE ON messagebox.running_sinks, messagebox.open_circuits TO __HOSTS_ROLE__;

-- Row-level security: a host sees only its own file claims, inbox rows, instances and services, and removed services.
-- It sees a fragment if it sees the inbox row of the fragment.
ALTER TABLE messagebox.file_claims ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON messagebox.file_claims;
CREATE POLICY own_locations ON messagebox.file_claims TO __HOSTS_ROLE__
    USING (messagebox.serves_location(location_id)) WITH CHECK (messagebox.serves_location(location_id));
ALTER TABLE messagebox.inbox ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON messagebox.inbox;
CREATE POLICY own_locations ON messagebox.inbox TO __HOSTS_ROLE__
    USING (location_id = ANY ((SELECT messagebox.own_locations())::uuid[]))
    WITH CHECK (location_id = ANY ((SELECT messagebox.own_locations())::uuid[]));
ALTER TABLE messagebox.inbox_fragments ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON messagebox.inbox_fragments;
CREATE POLICY own_locations ON messagebox.inbox_fragments TO __HOSTS_ROLE__
    USING (EXISTS (SELECT 1 FROM messagebox.inbox i WHERE i.interchange_id = inbox_fragments.interchange_id))
    WITH CHECK (EXISTS (SELECT 1 FROM messagebox.inbox i WHERE i.interchange_id = inbox_fragments.interchange_id));
ALTER TABLE messagebox.receive_attempts ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON messagebox.receive_attempts;
CREATE POLICY own_locations ON messagebox.receive_attempts TO __HOSTS_ROLE__
    USING (messagebox.serves_location(location_id)) WITH CHECK (messagebox.serves_location(location_id));
ALTER TABLE messagebox.running_locations ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_locations ON messagebox.running_locations;
CREATE POLICY own_locations ON messagebox.running_locations TO __HOSTS_ROLE__
    USING (messagebox.serves_location(location_id)) WITH CHECK (messagebox.serves_location(location_id));
ALTER TABLE messagebox.running_sinks ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_ports ON messagebox.running_sinks;
CREATE POLICY own_ports ON messagebox.running_sinks TO __HOSTS_ROLE__
    USING (port_id = ANY ((SELECT messagebox.own_services())::uuid[]))
    WITH CHECK (port_id = ANY ((SELECT messagebox.own_services())::uuid[]));
ALTER TABLE messagebox.open_circuits ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_hosts ON messagebox.open_circuits;
CREATE POLICY own_hosts ON messagebox.open_circuits TO __HOSTS_ROLE__
    USING (messagebox.runs_host(host_id)) WITH CHECK (messagebox.runs_host(host_id));
ALTER TABLE messagebox.host_instances ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_instances ON messagebox.host_instances;
CREATE POLICY own_instances ON messagebox.host_instances TO __HOSTS_ROLE__
    USING (messagebox.runs_host(host_id)) WITH CHECK (messagebox.runs_host(host_id));
ALTER TABLE messagebox.services ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS own_services ON messagebox.services;
CREATE POLICY own_services ON messagebox.services FOR SELECT TO __HOSTS_ROLE__
    USING (removed_at IS NOT NULL OR former_host_ids || host_id && (SELECT messagebox.own_hosts()));
