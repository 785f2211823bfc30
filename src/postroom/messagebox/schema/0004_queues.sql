-- Queues. Each host has a work, a scheduled and a suspended queue: partitions of three tables, made by create_host. A messaging
-- instance lives in its queue row; the view `instances` shows them all.

-- The order of arrival, across all queues.
CREATE SEQUENCE messagebox.queue_sequence;

-- What is to be done now.
CREATE TABLE messagebox.work_queue (
    seq              bigint NOT NULL DEFAULT nextval('messagebox.queue_sequence'),
    host_id          smallint NOT NULL,
    message_id       uuid NOT NULL,
    subscription_id  bigint,                             -- null: not queued by a subscription
    service_class    smallint NOT NULL,
    service_id       uuid,
    instance_id      uuid NOT NULL,
    priority         smallint NOT NULL,
    -- 1 deliver to the send port, 2 run the receive pipeline again, 3 publish (the pipeline has run already), 4 deliver to an
    -- instance that has other messages too.
    task             smallint NOT NULL DEFAULT 1,
    attempt          integer NOT NULL DEFAULT 0,
    enqueued_at      timestamptz NOT NULL DEFAULT now(),
    claim_id         uuid,                               -- null: not claimed
    claimed_by       integer                             -- the host instance
) PARTITION BY LIST (host_id);
-- There is no primary key: an index that could serve the ORDER BY over claimed rows too would be walked row by locked row.

-- Dequeuing.
CREATE INDEX work_queue_unclaimed ON messagebox.work_queue (service_class, priority, seq) WHERE claim_id IS NULL;
-- Completing, and releasing the claims of a dead host instance.
CREATE INDEX work_queue_claimed ON messagebox.work_queue (claim_id) WHERE claim_id IS NOT NULL;
-- The messages of one instance, in order.
CREATE INDEX work_queue_instance ON messagebox.work_queue (instance_id) WHERE task = 4;
-- What waits for one sink, in the order in which it is written; rows of other services are not in it.
CREATE INDEX work_queue_sinks ON messagebox.work_queue (service_id, priority, seq)
    WHERE claim_id IS NULL AND service_class = 128;

-- What waits for a retry or a service window.
CREATE TABLE messagebox.scheduled_queue (
    seq                bigint NOT NULL,                  -- as in the work queue, so that it returns to its place
    host_id            smallint NOT NULL,
    message_id         uuid NOT NULL,
    subscription_id    bigint,
    service_class      smallint NOT NULL,
    service_id         uuid,
    instance_id        uuid NOT NULL,
    priority           smallint NOT NULL,
    task               smallint NOT NULL DEFAULT 1,
    attempt            integer NOT NULL DEFAULT 0,
    enqueued_at        timestamptz NOT NULL,
    valid_from         timestamptz NOT NULL,             -- when it is due
    error_code         text,                             -- of the last attempt
    error_description  text
) PARTITION BY LIST (host_id);
-- Releasing what is due.
CREATE INDEX scheduled_queue_due ON messagebox.scheduled_queue (valid_from);
-- Operating on one instance.
CREATE INDEX scheduled_queue_instance ON messagebox.scheduled_queue (instance_id);

-- What waits for an operator, or for its port to be started.
CREATE TABLE messagebox.suspended_queue (
    seq                  bigint NOT NULL DEFAULT nextval('messagebox.queue_sequence'),
    host_id              smallint NOT NULL,
    message_id           uuid NOT NULL,
    subscription_id      bigint,
    service_class        smallint NOT NULL,
    service_id           uuid,
    instance_id          uuid NOT NULL,
    priority             smallint NOT NULL,
    task                 smallint NOT NULL DEFAULT 1,
    attempt              integer NOT NULL DEFAULT 0,
    enqueued_at          timestamptz NOT NULL DEFAULT now(),
    suspended_at         timestamptz NOT NULL DEFAULT now(),
    resumable            boolean NOT NULL DEFAULT true,
    cause                smallint NOT NULL,             -- 1 its port is stopped, 2 a failure, 3 a routing failure report, 4 an operator
    error_code           text NOT NULL,
    error_description    text NOT NULL,
    adapter              text,
    uri                  text,
    related_instance_id  uuid,                          -- of a routing failure report: the instance it is about
    -- The group through which it came, if it is suspended because the port or the group was stopped. The subscription may be
    -- another one when both are started.
    group_id             uuid
) PARTITION BY LIST (host_id);
-- Operating on one instance.
CREATE INDEX suspended_queue_instance ON messagebox.suspended_queue (instance_id);
-- Starting a port resumes what was suspended because it was stopped.
CREATE INDEX suspended_queue_stopped ON messagebox.suspended_queue (service_id, seq) WHERE cause = 1;
-- Starting a group does the same.
CREATE INDEX suspended_queue_stopped_group ON messagebox.suspended_queue (group_id)
    WHERE cause = 1 AND group_id IS NOT NULL;
-- The report about an instance.
CREATE INDEX suspended_queue_reports ON messagebox.suspended_queue (related_instance_id) WHERE cause = 3;

-- Every service instance there is, with BizTalk's state codes: 1 ready to run, 2 active, 4 suspended (resumable),
-- 8 dehydrated (a send port that waits for its next attempt), 32 suspended (not resumable).
CREATE VIEW messagebox.instances AS
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           CASE WHEN claim_id IS NULL THEN 1 ELSE 2 END::smallint AS state, enqueued_at,
           NULL::timestamptz AS valid_from, NULL::timestamptz AS suspended_at, NULL::smallint AS cause,
           NULL::text AS error_code, NULL::text AS error_description, NULL::text AS adapter, NULL::text AS uri,
           NULL::uuid AS related_instance_id
      FROM messagebox.work_queue
    UNION ALL
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           8::smallint, enqueued_at, valid_from, NULL, NULL, error_code, error_description, NULL, NULL, NULL
      FROM messagebox.scheduled_queue
    UNION ALL
    SELECT instance_id, host_id, service_class, service_id, subscription_id, message_id, task, attempt, priority, seq,
           CASE WHEN resumable THEN 4 ELSE 32 END::smallint, enqueued_at, NULL, suspended_at, cause,
           error_code, error_description, adapter, uri, related_instance_id
      FROM messagebox.suspended_queue;

-- One row: how much waits, for throttling. current_load measures again when the row is a second old.
CREATE TABLE management.load (
    queued            bigint NOT NULL DEFAULT 0,     -- rows in all work, scheduled and suspended queues
    spooled           bigint NOT NULL DEFAULT 0,     -- rows in the spool
    measured_at       timestamptz NOT NULL DEFAULT '-infinity',
    statistics_since  timestamptz,                   -- since when PostgreSQL counts rows; it starts again after a crash
    one_row           boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO management.load DEFAULT VALUES;
