-- The hosts of a MessageBox, their processes, and what it knows about services. A MessageBox refers to no table of the
-- schema management (0009): deployment writes services and properties in the transaction that stores the artifacts.
--
-- Each file of this folder is applied once, in the order of the numbers. After the first release a file never changes:
-- migrations are additive, and a new file with the next number changes the objects of earlier files. Functions are in
-- procedures/ and privileges in grants/. Both folders are applied again when one of their files changes.

CREATE SCHEMA management;
CREATE SCHEMA messagebox;

-- The applied schema files, for migrate.py.
CREATE TABLE management.schema_version (
    version     integer PRIMARY KEY,                                -- the number in the file name
    name        text NOT NULL,
    -- Hash of procedures/ and grants/; the same in every row.
    procedures  text,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- One row: the id of this MessageBox. Roles belong to the whole PostgreSQL server, so their names contain this id.
CREATE TABLE messagebox.message_box (
    id          text PRIMARY KEY DEFAULT substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
    created_at  timestamptz NOT NULL DEFAULT now(),
    one_row     boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO messagebox.message_box DEFAULT VALUES;

-- A host is a group of processes that receive and send messages. It has its own database role and its own queues.
CREATE TABLE messagebox.hosts (
    id                         smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                       text NOT NULL,
    role_name                  text NOT NULL,
    is_default                 boolean NOT NULL DEFAULT false,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    -- What the applications declare about it together, as JSON; changed by store_host_definition.
    definition                 jsonb NOT NULL DEFAULT '{}',
    -- Generated columns are what SQL needs of the definition. May publish on behalf of an originator:
    trusted                    boolean NOT NULL
                                   GENERATED ALWAYS AS (coalesce((definition ->> 'trusted')::boolean, false)) STORED,
    -- Throttling: the thresholds above which the host slows down, and the overrides of operators (THR-01 to THR-08).
    throttling                 jsonb NOT NULL GENERATED ALWAYS AS (coalesce(
        nullif(definition -> 'throttling', 'null'),
        '{"messages": 50000, "spool_multiplier": 10, "longest_delay": 300}')) STORED,
    throttling_overrides       jsonb NOT NULL DEFAULT '{}',
    -- Its instances neither receive nor send; messages wait in its queue.
    stopped                    boolean NOT NULL DEFAULT false
);
-- The secrets of hosts. The units of idempotency keys of programs derive from them, so that the login of one host can
-- neither use nor guess the units of another host. Logins read them by read_key_secret alone. create_host inserts the
-- row.
CREATE TABLE messagebox.key_secrets (
    host_id  smallint PRIMARY KEY REFERENCES messagebox.hosts ON DELETE CASCADE,
    secret   uuid NOT NULL DEFAULT gen_random_uuid()
);
-- Queue tables are named after their host, in lower case.
CREATE UNIQUE INDEX ON messagebox.hosts (lower(name));
-- At most one host is the default host.
CREATE UNIQUE INDEX ON messagebox.hosts (is_default) WHERE is_default;

-- A host instance is one process of a host: it delivers messages (host), or receives them and writes sinks (pipeline).
-- It holds a session advisory lock on its id. If nothing holds the lock, the process is dead.
CREATE TABLE messagebox.host_instances (
    id               integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id          smallint NOT NULL REFERENCES messagebox.hosts,
    kind             text NOT NULL DEFAULT 'host' CHECK (kind IN ('host', 'pipeline')),
    server           text NOT NULL,
    pid              integer NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    -- It uses the configuration of this version or a later one.
    routing_version  bigint NOT NULL DEFAULT 0,
    dead_since       timestamptz,                                    -- when a job first found that its lock is gone
    -- How the process itself is throttled, by direction.
    throttles        jsonb NOT NULL DEFAULT '{}',
    -- Why services do not work in this process, by the id of the service.
    problems         jsonb NOT NULL DEFAULT '{}'
);

-- Each enumeration is a StrEnum in Python with the same labels.

-- The kinds of services that receive messages. spark_sinks are send ports whose adapter is a Spark writer. Pipeline
-- processes drain them in batches; hosts do not dequeue them. programs are the subscriptions of programs
-- (client.subscribe), which claim their messages themselves.
CREATE TYPE messagebox.service_class AS ENUM ('orchestrations', 'messaging_in_process', 'caching', 'messaging_isolated',
                                              'routing_failure_report', 'spark_sinks', 'programs');

-- The states of a service, in the order in which it gets them.
CREATE TYPE messagebox.service_state AS ENUM ('bound', 'stopped', 'started');

-- What the MessageBox knows about services: send ports, receive locations, send port groups and orchestrations
-- (BizTalk: Services). The row of a removed send port or receive location stays: its instances keep the name. If the
-- same application declares it again, it gets its id back, and with it its instances.
CREATE TABLE messagebox.services (
    id               uuid PRIMARY KEY,
    kind             text NOT NULL CHECK (kind IN ('send port', 'location', 'send port group', 'orchestration')),
    application      text NOT NULL,
    name             text NOT NULL,
    -- The receive port of a location; otherwise the name.
    port_name        text NOT NULL,
    version          integer,                                       -- of an orchestration
    host_id          smallint REFERENCES messagebox.hosts,          -- null: a group, or removed
    -- Hosts it was moved away from that still have messages of it.
    former_host_ids  smallint[] NOT NULL DEFAULT '{}',
    -- Of a send port: callers may wait for its responses.
    two_way          boolean NOT NULL DEFAULT false,
    transport_id     uuid,                                          -- of a send port that is not dynamic
    -- Only here, not with the artifact. An enlisted service (stopped or started) has activation subscriptions.
    state            messagebox.service_state NOT NULL DEFAULT 'bound',
    removed_at       timestamptz,
    -- What is still to be done with the instances of a removed service. A command that is interrupted leaves it, and
    -- the next one continues.
    backlog          text NOT NULL DEFAULT 'keep' CHECK (backlog IN ('keep', 'reroute', 'terminate')),
    -- The id of a receive location that is not removed. What a location has accepted refers to it, and so prevents its
    -- removal: the foreign key locks the row (KEY SHARE) until a file claim is committed. If the removal commits first,
    -- the file claim fails.
    location_id      uuid UNIQUE GENERATED ALWAYS AS (
                         CASE WHEN kind = 'location' AND removed_at IS NULL THEN id END) STORED
);

-- The open circuit breakers of send ports: their receiver is dead, and their messages wait in the scheduled queue
-- without a time. At each next_probe_at one of them, probe_seq, is sent. After a success the breaker is closed, and the
-- row is deleted when all messages are released. A port that was moved has a row for each host that has messages of it.
CREATE TABLE messagebox.open_circuits (
    port_id         uuid NOT NULL REFERENCES messagebox.services,
    host_id         smallint NOT NULL REFERENCES messagebox.hosts,
    opened_at       timestamptz NOT NULL DEFAULT now(),
    opened_by       text NOT NULL,                                  -- machine and process of the host instance
    reason          text NOT NULL,                                  -- the error of the last attempt
    probe_interval  interval NOT NULL,
    next_probe_at   timestamptz NOT NULL,
    probe_seq       bigint NOT NULL DEFAULT 0,                      -- the number of the message that is the last probe
    probes          integer NOT NULL DEFAULT 0,
    closed_at       timestamptz,                                    -- not null: the waiting messages are being released
    PRIMARY KEY (port_id, host_id)
);

-- The deployed property schemas. A property has one type, which all applications share.
CREATE TABLE messagebox.properties (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         text COLLATE "C" NOT NULL UNIQUE,                   -- namespace, '#', name
    value_type  smallint NOT NULL CHECK (value_type BETWEEN 1 AND 6),
    sensitive   boolean NOT NULL DEFAULT false                      -- values are never shown
);

-- The last run of each job. Operators read it, and it decides which job is due.
CREATE TABLE messagebox.job_runs (
    name         text PRIMARY KEY,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz,
    runs         bigint NOT NULL DEFAULT 0,
    rows_last    bigint,                                            -- rows that the last run changed
    rows_total   bigint NOT NULL DEFAULT 0,
    error        text                                               -- of the last run; null: the run succeeded
);
