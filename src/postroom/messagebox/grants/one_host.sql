-- Every host, and every administrator, can insert references to messages into the queues of host __HOST__. Neither can
-- change the rows. The columns of the claim are not in the grant.
GRANT INSERT (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,
              for_host_instance)
    ON messagebox.__HOST___q TO __HOSTS_ROLE__, __ADMINISTRATORS_ROLE__;
GRANT INSERT (host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, resumable,
              cause, error_code, error_description, adapter, uri, related_instance_id, last_related_instance_id,
              group_id)
    ON messagebox.__HOST___q_suspended TO __HOSTS_ROLE__, __ADMINISTRATORS_ROLE__;

GRANT SELECT ON messagebox.__HOST___q, messagebox.__HOST___q_scheduled, messagebox.__HOST___q_suspended
    TO __ADMINISTRATORS_ROLE__;

-- Only host __HOST__ can call its own procedures, and administrators, who enlist ports of the host. __HOST_FUNCTIONS__
-- are all functions in procedures/host.
REVOKE ALL ON FUNCTION __HOST_FUNCTIONS__ FROM PUBLIC;
GRANT EXECUTE ON FUNCTION __HOST_FUNCTIONS__ TO __ROLE__, __ADMINISTRATORS_ROLE__;
-- Only dequeue_messages calls it.
REVOKE EXECUTE ON FUNCTION messagebox.claim_ordered_messages___HOST__ FROM __ROLE__;
