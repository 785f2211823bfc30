-- Create the three queues of host __HOST__. Their grants are in grants/one_host.sql.
CREATE TABLE messagebox.__HOST___q PARTITION OF messagebox.work_queue FOR VALUES IN (__HOST_ID__)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE messagebox.__HOST___q_scheduled PARTITION OF messagebox.scheduled_queue FOR VALUES IN (__HOST_ID__);
CREATE TABLE messagebox.__HOST___q_suspended PARTITION OF messagebox.suspended_queue FOR VALUES IN (__HOST_ID__);
