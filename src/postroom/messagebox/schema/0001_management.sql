-- Management: what the source document keeps in the Management database. Hosts, service classes, and what applications declare.
--
-- The files of this folder are applied once each, in the order of their numbers. After the first release a file never changes
-- again: a new file with the next number changes what the earlier ones made (migrations are additive). Functions are in
-- procedures/ and rights in grants/; both are replaced as a whole whenever one of them changes.

CREATE SCHEMA management;
CREATE SCHEMA messagebox;

-- The schema files that were applied, for migrate.py.
CREATE TABLE management.schema_version (
    version     integer PRIMARY KEY,                                -- the number in the file's name
    name        text NOT NULL,
    procedures  text,                                               -- hash of procedures/ and grants/; the same in every row
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- One row: the id of this MessageBox. Roles belong to the whole server, so their names contain it.
CREATE TABLE management.message_box (
    id          text PRIMARY KEY DEFAULT substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
    created_at  timestamptz NOT NULL DEFAULT now(),
    one_row     boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO management.message_box DEFAULT VALUES;

-- adm_ServiceClass: the kinds of services that receive messages, and how hosts dequeue for each kind.
CREATE TABLE management.service_classes (
    id                smallint PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    polling_interval  interval NOT NULL DEFAULT '500 ms' CHECK (polling_interval > '0'),   -- of an empty queue
    dequeue_threads   smallint NOT NULL DEFAULT 5 CHECK (dequeue_threads >= 1)
);
-- spark_sinks are send ports whose adapter is a Spark writer. Pipeline processes drain them in batches; hosts do not dequeue them.
INSERT INTO management.service_classes (id, name) VALUES
    (1, 'orchestrations'), (4, 'messaging_in_process'), (16, 'caching'), (32, 'messaging_isolated'),
    (64, 'routing_failure_report'), (128, 'spark_sinks');

-- A host: a name for the processes that receive and send together, with a database role and queues of its own.
CREATE TABLE management.hosts (
    id                         smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                       text NOT NULL,
    role_name                  text NOT NULL,
    is_default                 boolean NOT NULL DEFAULT false,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    trusted                    boolean NOT NULL DEFAULT false,      -- may publish on behalf of others; changed by set_trust
    -- Throttling (THR-04, THR-05): how much may wait before the host takes in less, and the longest delay.
    throttle_messages          integer NOT NULL DEFAULT 50000 CHECK (throttle_messages >= 0),                 -- 0: never
    throttle_spool_multiplier  double precision NOT NULL DEFAULT 10 CHECK (throttle_spool_multiplier >= 0),
    throttle_longest_delay     interval NOT NULL DEFAULT '300 seconds' CHECK (throttle_longest_delay >= '0')
);
-- Queue tables are named after their host, in lower case.
CREATE UNIQUE INDEX ON management.hosts (lower(name));
-- There is at most one default host.
CREATE UNIQUE INDEX ON management.hosts (is_default) WHERE is_default;

-- A host instance is one process. It holds a session advisory lock on its id; a lock that is gone means death.
CREATE TABLE management.host_instances (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES management.hosts,
    server      text NOT NULL,
    pid         integer NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    dead_since  timestamptz                                          -- when its lock was first found to be gone
);

-- The applications that were applied, as they were declared.
CREATE TABLE management.applications (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name        text NOT NULL UNIQUE,
    definition  jsonb NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- The property schemas that are deployed: one type per property, for every application.
CREATE TABLE management.properties (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         text COLLATE "C" NOT NULL UNIQUE,                   -- namespace, '#', name
    value_type  smallint NOT NULL CHECK (value_type BETWEEN 1 AND 6),
    sensitive   boolean NOT NULL DEFAULT false                      -- values are never shown
);

-- Receive ports: one or more receive locations with the same rules.
CREATE TABLE management.receive_ports (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE,
    route_failures  boolean NOT NULL DEFAULT false,                 -- publish an error message instead of suspending (FMR-01)
    authentication  text NOT NULL DEFAULT 'none'                    -- what fails it is dropped, or kept (suspended)
                    CHECK (authentication IN ('none', 'drop', 'keep'))
);

-- Receive locations: where and how the messages of a receive port come in. A host reads those of its own alone.
CREATE TABLE management.receive_locations (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    receive_port_id  uuid NOT NULL REFERENCES management.receive_ports ON DELETE CASCADE,
    host_id          smallint NOT NULL REFERENCES management.hosts,
    name             text NOT NULL UNIQUE,
    adapter          jsonb NOT NULL,
    adapter_kind     text GENERATED ALWAYS AS (adapter ->> 'kind') STORED,   -- for those who may not read the adapter
    pipeline         jsonb NOT NULL,
    maps             jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}',     -- of the receive port, with the files they need
    uri              text NOT NULL,                                 -- BTS.InboundTransportLocation
    enabled          boolean NOT NULL DEFAULT true,
    schedule         jsonb,                                         -- when it receives; null: always
    former_host_ids  smallint[] NOT NULL DEFAULT '{}'               -- hosts it was moved away from that still have messages of it
);

-- Send ports: where and how messages are sent. A host reads those of its own alone.
CREATE TABLE management.send_ports (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id   uuid NOT NULL REFERENCES management.applications,
    host_id          smallint NOT NULL REFERENCES management.hosts,
    name             text NOT NULL UNIQUE,
    description      text NOT NULL DEFAULT '' CHECK (length(description) <= 256),
    transport_id     uuid NOT NULL DEFAULT gen_random_uuid(),       -- BTS.SPTransportID
    adapter          jsonb NOT NULL,
    adapter_kind     text GENERATED ALWAYS AS (adapter ->> 'kind') STORED,   -- for those who may not read the adapter
    uri              text NOT NULL,                                 -- BTS.OutboundTransportLocation
    filter           text,
    maps             jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}',     -- with the files they need
    priority         smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    retry_count      integer NOT NULL DEFAULT 3 CHECK (retry_count BETWEEN 0 AND 1000),
    retry_interval   interval NOT NULL DEFAULT '5 min' CHECK (retry_interval >= '0'),
    route_failures   boolean NOT NULL DEFAULT false,                -- publish an error message instead of suspending (FMR-01)
    state            smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3),   -- 1 bound, 2 stopped, 3 started
    subscription_id  bigint,                                        -- by its own filter; null unless it is enlisted
    former_host_ids  smallint[] NOT NULL DEFAULT '{}'               -- hosts it was moved away from that still have messages of it
);

-- Send port groups: send ports that receive messages together. A group has no subscription of its own: each member has one
-- more, through the group, as long as both are enlisted.
CREATE TABLE management.send_port_groups (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),     -- BTS.SPGroupID
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE,
    description     text NOT NULL DEFAULT '' CHECK (length(description) <= 256),
    filter          text,
    state           smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3)    -- 1 bound, 2 stopped, 3 started
);

-- Which send ports are in which group. A member cannot be deleted (SPT-09).
CREATE TABLE management.send_port_group_members (
    group_id         uuid NOT NULL REFERENCES management.send_port_groups ON DELETE CASCADE,
    port_id          uuid NOT NULL REFERENCES management.send_ports,
    subscription_id  bigint,                                        -- null unless both are enlisted
    PRIMARY KEY (group_id, port_id)
);
-- The groups of a port, when it is enlisted or deleted.
CREATE INDEX ON management.send_port_group_members (port_id);

-- The last run of each job, for people and to decide which job is due.
CREATE TABLE management.job_runs (
    name         text PRIMARY KEY,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz,
    runs         bigint NOT NULL DEFAULT 0,
    rows_last    bigint,                                            -- rows that the last run changed
    rows_total   bigint NOT NULL DEFAULT 0,
    error        text                                               -- of the last run; null: it succeeded
);
