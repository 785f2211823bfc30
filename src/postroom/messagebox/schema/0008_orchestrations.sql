-- Orchestrations and their instances. A host claims an instance, not a message: messages, timers and operators make an
-- instance ready, and one host instance at a time works on it.

-- The instances that have not ended. A waiting instance is a row here, its journal and its instance subscriptions.
CREATE TABLE messagebox.orchestration_instances (
    instance_id        uuid PRIMARY KEY,
    host_id            smallint NOT NULL REFERENCES messagebox.hosts,
    service_id         uuid NOT NULL,                    -- the orchestration, in this version
    priority           smallint NOT NULL,                -- of the message that made it ready
    created_at         timestamptz NOT NULL,
    journal_length     integer NOT NULL DEFAULT 0,       -- a persistence point compares it, and increases it
    journals           integer NOT NULL DEFAULT 0,       -- how often it has started again with a fresh journal
    -- What it has carried over from its last journal, as it was written.
    carried            json,
    wake_at            timestamptz,                      -- when its next timer is due; null: it has none
    ready_seq          bigint,                           -- there is something to do since this number; null: it waits
    claim_id           uuid,                             -- null: not claimed
    claimed_by         integer,                          -- the host instance
    -- The number of host instances that died, or ran out of memory, while they had it, since its last persistence
    -- point.
    process_deaths     smallint NOT NULL DEFAULT 0,
    suspended_at       timestamptz,                      -- null: not suspended
    error_code         text,
    error_description  text
);
-- Claiming the instances that are ready.
CREATE INDEX orchestration_instances_ready ON messagebox.orchestration_instances (host_id, priority, ready_seq)
    WHERE ready_seq IS NOT NULL AND claim_id IS NULL AND suspended_at IS NULL;
-- Waking the instances whose timer is due.
CREATE INDEX orchestration_instances_due ON messagebox.orchestration_instances (host_id, wake_at)
    WHERE wake_at IS NOT NULL AND ready_seq IS NULL AND claim_id IS NULL AND suspended_at IS NULL;
-- Reading the messages of a claim, and releasing the claims of a dead host instance.
CREATE INDEX orchestration_instances_claimed ON messagebox.orchestration_instances (claim_id)
    WHERE claim_id IS NOT NULL;
-- The instances that are claimed one at a time, because two host instances died while they had them.
CREATE INDEX orchestration_instances_suspected ON messagebox.orchestration_instances (host_id, claimed_by)
    WHERE process_deaths >= 2;
-- The instances of an orchestration.
CREATE INDEX orchestration_instances_service ON messagebox.orchestration_instances (service_id);

-- The messages of instances: those that were routed to it and that it has not received yet, and those that it has
-- received. The row is the reference to the message. Received messages stay until the instance ends, because a replay
-- needs them.
CREATE TABLE messagebox.orchestration_messages (
    instance_id      uuid NOT NULL,
    seq              bigint NOT NULL,                    -- the number in the queue
    message_id       uuid NOT NULL,
    subscription_id  bigint,
    enqueued_at      timestamptz NOT NULL,
    counted_in       xid8 NOT NULL,                      -- the transaction that counted the reference (0005)
    consumed_in      integer,                            -- the journal entry that received it; null: not received
    PRIMARY KEY (instance_id, seq)
);

-- The journals of instances: the turns of each persistence point.
CREATE TABLE messagebox.orchestration_journal (
    instance_id  uuid NOT NULL,
    number       integer NOT NULL,                       -- the length of the journal with it
    stored_at    timestamptz NOT NULL DEFAULT now(),
    turns        json NOT NULL,                          -- not jsonb: a replay gets the numbers and keys as they were
    PRIMARY KEY (instance_id, number)
);

-- All service instances.
CREATE VIEW messagebox.instances AS
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           CASE WHEN claim_id IS NULL THEN 'ready to run' ELSE 'active' END::messagebox.instance_state AS state,
           enqueued_at, NULL::timestamptz AS valid_from, NULL::timestamptz AS suspended_at,
           NULL::messagebox.suspension_cause AS cause, NULL::text AS error_code, NULL::text AS error_description,
           NULL::text AS adapter, NULL::text AS uri, NULL::uuid AS related_instance_id,
           NULL::uuid AS last_related_instance_id, counted_in, primary_attempts
      FROM messagebox.work_queue
    UNION ALL
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           state, enqueued_at, CASE WHEN NOT paused THEN valid_from END, NULL, NULL, error_code, error_description,
           NULL, NULL, NULL, NULL, counted_in, primary_attempts
      FROM messagebox.scheduled_queue
    UNION ALL
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           CASE WHEN resumable THEN 'suspended' ELSE 'suspended, not resumable' END::messagebox.instance_state,
           enqueued_at, NULL, suspended_at, cause, error_code, error_description, adapter, uri, related_instance_id,
           last_related_instance_id, counted_in, NULL::integer
      FROM messagebox.suspended_queue
    UNION ALL
    SELECT m.instance_id, i.host_id, 'orchestrations'::messagebox.service_class, i.service_id, m.subscription_id,
           m.message_id, 'join_instance'::messagebox.queue_task, 0, i.priority, m.seq,
           CASE WHEN i.suspended_at IS NOT NULL THEN 'suspended' WHEN i.claim_id IS NOT NULL THEN 'active'
                WHEN i.ready_seq IS NOT NULL THEN 'ready to run' ELSE 'waiting' END::messagebox.instance_state,
           i.created_at, i.wake_at, i.suspended_at,
           CASE WHEN i.error_code = 'OPERATOR' THEN 'operator'
                WHEN i.suspended_at IS NOT NULL THEN 'failure' END::messagebox.suspension_cause,
           i.error_code, i.error_description, NULL, NULL, NULL, NULL, m.counted_in, NULL::integer
      FROM messagebox.orchestration_instances i JOIN messagebox.orchestration_messages m USING (instance_id);
