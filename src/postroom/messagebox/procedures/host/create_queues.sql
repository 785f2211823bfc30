-- The three queues of host __HOST__ and who may write to them: any host may insert (and only insert) references to
-- messages; the columns that say who works on a row are not in the grant.
CREATE TABLE messagebox.__HOST___q PARTITION OF messagebox.work_queue FOR VALUES IN (__HOST_ID__)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE messagebox.__HOST___q_scheduled PARTITION OF messagebox.scheduled_queue FOR VALUES IN (__HOST_ID__);
CREATE TABLE messagebox.__HOST___q_suspended PARTITION OF messagebox.suspended_queue FOR VALUES IN (__HOST_ID__);

GRANT INSERT (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task)
    ON messagebox.__HOST___q TO __HOSTS_ROLE__;
GRANT INSERT (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, resumable,
              cause, error_code, error_description, adapter, uri, related_instance_id, group_id)
    ON messagebox.__HOST___q_suspended TO __HOSTS_ROLE__;
