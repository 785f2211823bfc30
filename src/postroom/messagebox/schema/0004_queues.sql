-- Queues. Each host has a work queue, a scheduled queue and a suspended queue. They are partitions of three tables,
-- which create_host creates. A messaging instance is a queue row. The view `instances` (0008) shows all instances.

-- The order of arrival, across all queues.
CREATE SEQUENCE messagebox.queue_sequence;

-- What a host does with a message: deliver it to the send port, run the receive pipeline again, publish it (the
-- pipeline has run already), deliver it to an instance that has other messages too, publish it again, to subscriptions
-- that were created after it was routed, or deliver it to an ordered send port, which is one instance for all its
-- messages.
CREATE TYPE messagebox.queue_task AS ENUM ('deliver', 'receive', 'publish', 'join_instance', 'reroute',
                                           'deliver_in_order');

-- The states of an instance. An orchestration that waits is `waiting` (BizTalk: dehydrated). A send port waits for its
-- next attempt (`waiting to retry`, a state of our own), or for its service window or its circuit breaker
-- (`scheduled`).
CREATE TYPE messagebox.instance_state AS ENUM ('ready to run', 'active', 'waiting', 'waiting to retry', 'scheduled',
                                               'suspended', 'suspended, not resumable');

-- The messages that can be processed now. The columns are in an order without gaps for alignment: first those that are
-- never null, the widest alignment first. A row takes 128 bytes.
CREATE TABLE messagebox.work_queue (
    seq              bigint NOT NULL DEFAULT nextval('messagebox.queue_sequence'),
    enqueued_at      timestamptz NOT NULL DEFAULT now(),
    counted_in       xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction that counted the reference (0005)
    service_class    messagebox.service_class NOT NULL,
    task             messagebox.queue_task NOT NULL DEFAULT 'deliver',
    attempt          integer NOT NULL DEFAULT 0,         -- attempts before, by both transports of a send port
    host_id          smallint NOT NULL,
    priority         smallint NOT NULL,
    message_id       uuid NOT NULL,
    instance_id      uuid NOT NULL,
    subscription_id  bigint,                             -- null: not queued by a subscription
    service_id       uuid,
    claim_id         uuid,                               -- null: not claimed
    claimed_by       integer,                            -- the host instance
    for_host_instance integer,                           -- of a response: only this host instance claims it (RR-03)
    -- The attempts of the primary transport, if the backup transport makes the next one; otherwise null.
    primary_attempts integer,
    -- Of a program's message: how often a lease has expired before the program ended the message; null: never.
    expired_leases   smallint,
    properties       jsonb                               -- context properties that the adapter has updated (SND-09)
) PARTITION BY LIST (host_id);
-- There is no primary key. PostgreSQL could use its index for the ORDER BY of a dequeue, and would then visit every
-- claimed row.

-- Dequeuing. Messages of ordered send ports are not in it: thousands of them may wait for the first one.
CREATE INDEX work_queue_unclaimed ON messagebox.work_queue (service_class, priority, seq)
    WHERE claim_id IS NULL AND task <> 'deliver_in_order';
-- Completing, and releasing the claims of a dead host instance. By number too: the tasks of a sink read parts of a
-- large claim.
CREATE INDEX work_queue_claimed ON messagebox.work_queue (claim_id, seq) WHERE claim_id IS NOT NULL;
-- The responses that wait for host instances that are dead.
CREATE INDEX work_queue_host_instance ON messagebox.work_queue (for_host_instance) WHERE for_host_instance IS NOT NULL;
-- The messages of one instance, in order.
CREATE INDEX work_queue_instance ON messagebox.work_queue (instance_id) WHERE task = 'join_instance';
-- The messages of ordered send ports: the ports, and the first messages of each.
CREATE INDEX work_queue_ordered ON messagebox.work_queue (instance_id, seq) WHERE task = 'deliver_in_order';
-- The ordered send ports whose first messages are claimed.
CREATE INDEX work_queue_ordered_claimed ON messagebox.work_queue (instance_id)
    WHERE task = 'deliver_in_order' AND claim_id IS NOT NULL;
-- The messages that wait for a sink, in the order in which they are written. Rows of other services are not in the
-- index.
CREATE INDEX work_queue_sinks ON messagebox.work_queue (service_id, priority, seq)
    WHERE claim_id IS NULL AND service_class = 'spark_sinks';

-- The messages that wait for a program, in the order in which it receives them.
CREATE INDEX work_queue_programs ON messagebox.work_queue (service_id, priority, seq)
    WHERE claim_id IS NULL AND service_class = 'programs';
-- The messages that may have killed the programs that received them. They are delivered one at a time.
CREATE INDEX work_queue_suspects ON messagebox.work_queue (service_id, priority, seq)
    WHERE service_class = 'programs' AND expired_leases >= 2;

-- The messages that wait for a retry or a service window.
CREATE TABLE messagebox.scheduled_queue (
    seq                bigint NOT NULL,                  -- as in the work queue, so that the order is kept
    host_id            smallint NOT NULL,
    message_id         uuid NOT NULL,
    subscription_id    bigint,
    service_class      messagebox.service_class NOT NULL,
    service_id         uuid,
    instance_id        uuid NOT NULL,
    priority           smallint NOT NULL,
    task               messagebox.queue_task NOT NULL DEFAULT 'deliver',
    attempt            integer NOT NULL DEFAULT 0,
    primary_attempts   integer,
    properties         jsonb,
    enqueued_at        timestamptz NOT NULL,
    counted_in         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    valid_from         timestamptz NOT NULL,             -- when it is due
    state              messagebox.instance_state NOT NULL DEFAULT 'waiting to retry'
                           CHECK (state IN ('scheduled', 'waiting to retry')),
    -- It waits until the circuit breaker is closed; valid_from: it expires.
    paused             boolean NOT NULL DEFAULT false,
    error_code         text,                             -- of the last attempt
    error_description  text
) PARTITION BY LIST (host_id);
-- Releasing the messages that are due.
CREATE INDEX scheduled_queue_due ON messagebox.scheduled_queue (valid_from);
-- Operating on one instance, and the first message of an ordered send port.
CREATE INDEX scheduled_queue_instance ON messagebox.scheduled_queue (instance_id, seq);
-- Releasing the messages that wait for the service window of a port, when the window changes, and those that wait until
-- its circuit breaker is closed.
CREATE INDEX scheduled_queue_window ON messagebox.scheduled_queue (service_id, seq) WHERE state = 'scheduled';

-- Why a message is suspended.
CREATE TYPE messagebox.suspension_cause AS ENUM ('port stopped', 'failure', 'routing failure report', 'operator');

-- The messages that wait for an operator, or for the start of their port.
CREATE TABLE messagebox.suspended_queue (
    seq                  bigint NOT NULL DEFAULT nextval('messagebox.queue_sequence'),
    host_id              smallint NOT NULL,
    message_id           uuid NOT NULL,
    subscription_id      bigint,
    service_class        messagebox.service_class NOT NULL,
    service_id           uuid,
    instance_id          uuid NOT NULL,
    priority             smallint NOT NULL,
    task                 messagebox.queue_task NOT NULL DEFAULT 'deliver',
    attempt              integer NOT NULL DEFAULT 0,
    properties           jsonb,
    enqueued_at          timestamptz NOT NULL DEFAULT now(),
    -- The transaction that counted the reference (0005).
    counted_in           xid8 NOT NULL DEFAULT pg_current_xact_id(),
    suspended_at         timestamptz NOT NULL DEFAULT now(),
    resumable            boolean NOT NULL DEFAULT true,
    cause                messagebox.suspension_cause NOT NULL,
    -- Start of the service window, if it was suspended while scheduled.
    valid_from           timestamptz,
    error_code           text NOT NULL,
    error_description    text NOT NULL,
    adapter              text,
    uri                  text,
    -- Of a routing failure report: the first and the last reported instance. Their ids are consecutive.
    related_instance_id  uuid,
    last_related_instance_id uuid,
    -- The group whose subscription matched, if the message is suspended because the port or the group is stopped. The
    -- group and the port may have another subscription by the time both are started.
    group_id             uuid
) PARTITION BY LIST (host_id);
-- Operating on one instance, and the first message of an ordered send port.
CREATE INDEX suspended_queue_instance ON messagebox.suspended_queue (instance_id, seq);
-- Listing the latest instances.
CREATE INDEX suspended_queue_number ON messagebox.suspended_queue (seq);
-- Starting a port resumes the messages that were suspended because the port was stopped.
CREATE INDEX suspended_queue_stopped ON messagebox.suspended_queue (service_id, seq) WHERE cause = 'port stopped';
-- Starting a group does the same.
CREATE INDEX suspended_queue_stopped_group ON messagebox.suspended_queue (group_id)
    WHERE cause = 'port stopped' AND group_id IS NOT NULL;
-- The routing failure report of an instance.
CREATE INDEX suspended_queue_reports ON messagebox.suspended_queue (related_instance_id)
    WHERE cause = 'routing failure report';

-- Counting the rows of each receive location: messages that could not be received or published, and reports.
CREATE INDEX suspended_queue_received ON messagebox.suspended_queue (service_id)
    WHERE task IN ('receive', 'publish') OR cause = 'routing failure report';

-- A row of any queue on its way to another queue or out of the queues: the columns that a procedure keeps, and those of
-- the queue where it was or will be. A procedure takes rows out of a queue as values of this type, changes fields, and
-- gives them to int_enqueue, int_schedule or int_suspend, which write them, or to int_finish.
CREATE TYPE messagebox.queue_row AS (
    seq                       bigint,
    host_id                   smallint,
    message_id                uuid,
    subscription_id           bigint,
    service_class             messagebox.service_class,
    service_id                uuid,
    instance_id               uuid,
    priority                  smallint,
    task                      messagebox.queue_task,
    attempt                   integer,
    primary_attempts          integer,
    properties                jsonb,
    enqueued_at               timestamptz,
    counted_in                xid8,
    -- Of the scheduled queue, and valid_from of the suspended queue, too.
    valid_from                timestamptz,
    state                     messagebox.instance_state,
    paused                    boolean,
    -- Of the scheduled and the suspended queue.
    error_code                text,
    error_description         text,
    -- Of the suspended queue.
    suspended_at              timestamptz,
    resumable                 boolean,
    cause                     messagebox.suspension_cause,
    adapter                   text,
    uri                       text
);

-- Operations on many instances: those that an operator chose, or those that wait for the start of a send port or group.
-- The command and the jobs of the hosts carry them out in pieces (continue_operation).
CREATE TABLE messagebox.operations (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('resume', 'reroute', 'suspend', 'terminate', 'start')),
    target        text NOT NULL,                     -- the conditions, or the name of the port or group
    service_id    uuid,                              -- start: the send port
    group_id      uuid,                              -- start: the send port group
    requested_by  text NOT NULL DEFAULT session_user,
    -- As in management.audit, like the reason.
    os_user       text DEFAULT nullif(current_setting('postroom.os_user', true), ''),
    reason        text DEFAULT nullif(current_setting('postroom.reason', true), ''),
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    total         bigint NOT NULL DEFAULT 0,         -- chosen instances; 0: start
    changed       bigint NOT NULL DEFAULT 0,
    messages      bigint NOT NULL DEFAULT 0,         -- terminated ones; 0: other kinds
    remaining     bigint NOT NULL DEFAULT 0,         -- the rows in operation_instances, which may be a million
    -- The number of instances that hosts got to process, by the name of the host.
    hosts         jsonb NOT NULL DEFAULT '{}',
    continued_at  timestamptz,                       -- the last piece
    finished_at   timestamptz
);
-- Finding work.
CREATE INDEX operations_unfinished ON messagebox.operations (id) WHERE finished_at IS NULL;

-- The instances of an operation that are still to be changed.
CREATE TABLE messagebox.operation_instances (
    operation_id  bigint NOT NULL REFERENCES messagebox.operations ON DELETE CASCADE,
    number        bigint NOT NULL,
    instance_id   uuid NOT NULL,
    -- Only this message of an ordered send port, if it is still the first; null: all messages of the instance.
    seq           bigint,
    pending       boolean NOT NULL DEFAULT false,    -- it was active, and is changed when it is not active any more
    PRIMARY KEY (operation_id, number)
);
-- Only one operation can be pending for an instance (INS-06).
CREATE UNIQUE INDEX operation_instances_pending ON messagebox.operation_instances (instance_id) WHERE pending;

-- The subscriptions of programs, by name. The filter is in messagebox.subscriptions, under the same service id.
CREATE TABLE messagebox.program_subscriptions (
    -- Derived from the name, so that a subscription that returns has its messages again.
    service_id    uuid PRIMARY KEY,
    host_id       smallint NOT NULL REFERENCES messagebox.hosts,
    name          text NOT NULL UNIQUE,
    -- It is removed if no program has used it for this time; null: never.
    expire_after  interval,
    last_used_at  timestamptz NOT NULL,
    -- A message whose lease has expired this often is suspended; null: never.
    max_attempts  smallint
);

-- The claims of programs. Host instances need none, because their lock shows that they live.
CREATE TABLE messagebox.leases (
    claim_id    uuid PRIMARY KEY,
    service_id  uuid NOT NULL,
    length      interval NOT NULL,
    expires_at  timestamptz NOT NULL
);
-- Releasing the messages of expired leases.
CREATE INDEX leases_expiring ON messagebox.leases (expires_at);

-- One row: the load of the MessageBox, for throttling. current_load measures it again when the row is a second old.
CREATE TABLE messagebox.load (
    queued            bigint NOT NULL DEFAULT 0,     -- rows in all work, scheduled and suspended queues
    spooled           bigint NOT NULL DEFAULT 0,     -- rows in the spool
    -- Suspended rows by receive location. The key of programs is empty, and that of routing failure reports is
    -- "reports". Counted only if a threshold is exceeded, and otherwise {}.
    suspended         jsonb NOT NULL DEFAULT '{}',
    counted_in        interval NOT NULL DEFAULT '0', -- how long the count of suspended rows took
    sessions          bigint NOT NULL DEFAULT 0,     -- sessions of this database
    -- Rates: rows that came into the queues and left them in the last complete window, and the counters at the start of
    -- the current window.
    incoming          bigint NOT NULL DEFAULT 0,
    outgoing          bigint NOT NULL DEFAULT 0,
    inserted          bigint NOT NULL DEFAULT 0,
    deleted           bigint NOT NULL DEFAULT 0,
    window_start      timestamptz NOT NULL DEFAULT '-infinity',
    measured_at       timestamptz NOT NULL DEFAULT '-infinity',
    statistics_since  timestamptz,                   -- start of PostgreSQL's row counters, which a crash resets
    one_row           boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO messagebox.load DEFAULT VALUES;
