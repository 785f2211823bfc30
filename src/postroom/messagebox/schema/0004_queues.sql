-- Per host a work, a suspended and a scheduled queue: partitions of three tables, made by create_host. A messaging
-- instance lives in its queue row; the view `instances` shows them all.

CREATE SEQUENCE messagebox.queue_sequence;

-- task: 1 deliver to the send port, 2 run the receive pipeline again, 3 publish (the pipeline has run already).
CREATE TABLE messagebox.work_queue (
    seq              bigint NOT NULL DEFAULT nextval('messagebox.queue_sequence'),
    host_id          smallint NOT NULL,
    message_id       uuid NOT NULL,
    subscription_id  bigint,
    service_class    smallint NOT NULL,
    service_id       uuid,
    instance_id      uuid NOT NULL,
    priority         smallint NOT NULL,
    task             smallint NOT NULL DEFAULT 1,
    attempt          integer NOT NULL DEFAULT 0,
    enqueued_at      timestamptz NOT NULL DEFAULT now(),
    claim_id         uuid,
    claimed_by       integer
) PARTITION BY LIST (host_id);
-- No primary key: an index that could serve the ORDER BY over claimed rows too would be walked row by locked row.
CREATE INDEX work_queue_unclaimed ON messagebox.work_queue (service_class, priority, seq) WHERE claim_id IS NULL;
CREATE INDEX work_queue_claimed ON messagebox.work_queue (claim_id) WHERE claim_id IS NOT NULL;

CREATE TABLE messagebox.scheduled_queue (
    seq              bigint NOT NULL,
    host_id          smallint NOT NULL,
    message_id       uuid NOT NULL,
    subscription_id  bigint,
    service_class    smallint NOT NULL,
    service_id       uuid,
    instance_id      uuid NOT NULL,
    priority         smallint NOT NULL,
    task             smallint NOT NULL DEFAULT 1,
    attempt          integer NOT NULL DEFAULT 0,
    enqueued_at      timestamptz NOT NULL,
    valid_from       timestamptz NOT NULL,
    error_code       text,
    error_description text
) PARTITION BY LIST (host_id);
CREATE INDEX scheduled_queue_due ON messagebox.scheduled_queue (valid_from);
CREATE INDEX scheduled_queue_instance ON messagebox.scheduled_queue (instance_id);

-- cause: 1 its port is stopped, 2 a failure, 3 a routing failure report, 4 an operator.
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
    cause                smallint NOT NULL,
    error_code           text NOT NULL,
    error_description    text NOT NULL,
    adapter              text,
    uri                  text,
    related_instance_id  uuid                          -- of a routing failure report: the instance it is about
) PARTITION BY LIST (host_id);
CREATE INDEX suspended_queue_instance ON messagebox.suspended_queue (instance_id);
-- Starting a port takes back what was suspended because it was stopped.
CREATE INDEX suspended_queue_stopped ON messagebox.suspended_queue (service_id, seq) WHERE cause = 1;
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
