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

-- Only host __HOST__ can call its own procedures, and administrators, who enlist ports of the host.
REVOKE ALL ON FUNCTION
    messagebox.create_subscription___HOST__, messagebox.insert_predicate___HOST__, messagebox.dequeue_messages___HOST__,
    messagebox.complete_messages___HOST__, messagebox.retry_messages___HOST__, messagebox.suspend_messages___HOST__,
    messagebox.postpone_messages___HOST__, messagebox.release_paused___HOST__,
    messagebox.release_claims___HOST__, messagebox.release_messages___HOST__, messagebox.release_due___HOST__,
    messagebox.read_parts___HOST__, messagebox.read_fragments___HOST__, messagebox.insert_error_message___HOST__,
    messagebox.create_instance_subscription___HOST__, messagebox.remove_instance_subscription___HOST__,
    messagebox.change_subscription___HOST__, messagebox.create_convoy_set___HOST__,
    messagebox.complete_instance___HOST__, messagebox.dequeue_in_order___HOST__,
    messagebox.claim_orchestrations___HOST__,
    messagebox.read_orchestration_messages___HOST__,
    messagebox.read_orchestration_journal___HOST__,
    messagebox.persist_orchestrations___HOST__,
    messagebox.release_orchestrations___HOST__,
    messagebox.lock_orchestrations___HOST__,
    messagebox.restart_orchestration___HOST__,
    messagebox.end_orchestrations___HOST__,
    messagebox.suspend_orchestration___HOST__,
    messagebox.claim_ordered_messages___HOST__,
    messagebox.waiting_sinks___HOST__, messagebox.open_sink_batch___HOST__, messagebox.read_sink_messages___HOST__,
    messagebox.set_sink_batch_written___HOST__, messagebox.written_sink_batches___HOST__,
    messagebox.complete_sink_batch___HOST__, messagebox.close_sink_batch___HOST__,
    messagebox.lock_sink_batch___HOST__, messagebox.record_sink_attempt___HOST__,
    messagebox.suspect_sink_messages___HOST__,
    messagebox.clear_sink_attempts___HOST__, messagebox.count_attempted_sink_messages___HOST__,
    messagebox.open_program_subscription___HOST__, messagebox.claim_for_program___HOST__,
    messagebox.extend_lease___HOST__,
    messagebox.store_response___HOST__, messagebox.read_responses___HOST__,
    messagebox.read_response_fragments___HOST__, messagebox.take_over_request___HOST__,
    messagebox.count_instances___HOST__
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    messagebox.create_subscription___HOST__, messagebox.insert_predicate___HOST__, messagebox.dequeue_messages___HOST__,
    messagebox.complete_messages___HOST__, messagebox.retry_messages___HOST__, messagebox.suspend_messages___HOST__,
    messagebox.postpone_messages___HOST__, messagebox.release_paused___HOST__,
    messagebox.release_claims___HOST__, messagebox.release_messages___HOST__, messagebox.release_due___HOST__,
    messagebox.read_parts___HOST__, messagebox.read_fragments___HOST__, messagebox.insert_error_message___HOST__,
    messagebox.create_instance_subscription___HOST__, messagebox.remove_instance_subscription___HOST__,
    messagebox.change_subscription___HOST__, messagebox.create_convoy_set___HOST__,
    messagebox.complete_instance___HOST__, messagebox.dequeue_in_order___HOST__,
    messagebox.claim_orchestrations___HOST__,
    messagebox.read_orchestration_messages___HOST__,
    messagebox.read_orchestration_journal___HOST__,
    messagebox.persist_orchestrations___HOST__,
    messagebox.release_orchestrations___HOST__,
    messagebox.lock_orchestrations___HOST__,
    messagebox.restart_orchestration___HOST__,
    messagebox.end_orchestrations___HOST__,
    messagebox.suspend_orchestration___HOST__,
    messagebox.waiting_sinks___HOST__, messagebox.open_sink_batch___HOST__, messagebox.read_sink_messages___HOST__,
    messagebox.set_sink_batch_written___HOST__, messagebox.written_sink_batches___HOST__,
    messagebox.complete_sink_batch___HOST__, messagebox.close_sink_batch___HOST__,
    messagebox.lock_sink_batch___HOST__, messagebox.record_sink_attempt___HOST__,
    messagebox.suspect_sink_messages___HOST__,
    messagebox.clear_sink_attempts___HOST__, messagebox.count_attempted_sink_messages___HOST__,
    messagebox.open_program_subscription___HOST__, messagebox.claim_for_program___HOST__,
    messagebox.extend_lease___HOST__,
    messagebox.store_response___HOST__, messagebox.read_responses___HOST__,
    messagebox.read_response_fragments___HOST__, messagebox.take_over_request___HOST__,
    messagebox.count_instances___HOST__
    TO __ROLE__, __ADMINISTRATORS_ROLE__;
-- Only dequeue_messages calls it. Administrators may call every function.
GRANT EXECUTE ON FUNCTION messagebox.claim_ordered_messages___HOST__ TO __ADMINISTRATORS_ROLE__;
