-- What every host may do. Messages may be inserted, and only inserted; reading them goes through each host's own
-- procedures. Internal procedures are for nobody but their owner.
GRANT USAGE ON SCHEMA messagebox, management TO __HOSTS_ROLE__;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA messagebox FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    messagebox.lock_routing, messagebox.find_subscriptions, messagebox.predicate_holds, messagebox.route_message,
    messagebox.insert_message,
    messagebox.insert_part, messagebox.flip_ref_count_log, messagebox.fold_ref_count_log, messagebox.message_cleanup,
    messagebox.parts_cleanup, messagebox.purge_subscriptions, messagebox.dead_processes_cleanup,
    messagebox.operate_on_instances, messagebox.purge_receipts
    TO __HOSTS_ROLE__;

-- Who published is filled by the server from the login: published_by and published_at are not in the grant.
GRANT INSERT (message_id, part_ids, body_part_id, body_part_name, context) ON messagebox.spool TO __HOSTS_ROLE__;
GRANT INSERT ON messagebox.parts, messagebox.fragments, messagebox.message_ref_count_log_1,
    messagebox.message_ref_count_log_2, messagebox.part_ref_count_log_1, messagebox.part_ref_count_log_2,
    messagebox.receipts, messagebox.message_properties, messagebox.message_predicates TO __HOSTS_ROLE__;
GRANT SELECT, DELETE ON messagebox.message_properties, messagebox.message_predicates TO __HOSTS_ROLE__;
GRANT USAGE ON SEQUENCE messagebox.queue_sequence, messagebox.claim_number TO __HOSTS_ROLE__;

-- The routing index in memory, receipts, and the files that a location has claimed.
GRANT SELECT ON messagebox.routing_version, messagebox.subscriptions, messagebox.predicate_groups,
    messagebox.predicates, messagebox.receipts, messagebox.active_ref_count_log TO __HOSTS_ROLE__;
GRANT SELECT, INSERT, UPDATE, DELETE ON messagebox.claims TO __HOSTS_ROLE__;
GRANT SELECT ON ALL TABLES IN SCHEMA management TO __HOSTS_ROLE__;
GRANT INSERT, UPDATE, DELETE ON management.host_instances, management.job_runs TO __HOSTS_ROLE__;
GRANT UPDATE (outcome) ON messagebox.receipts TO __HOSTS_ROLE__;
