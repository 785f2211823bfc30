-- Management: the tables of BizTalk's Management database. Hosts, service classes, and the artifacts of applications.
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

-- The kinds of services that receive messages, and how hosts dequeue for each kind (BizTalk: adm_ServiceClass).
CREATE TABLE management.service_classes (
    id                smallint PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    polling_interval  interval NOT NULL DEFAULT '500 ms' CHECK (polling_interval > '0'),   -- of an empty queue
    dequeue_threads   smallint NOT NULL DEFAULT 5 CHECK (dequeue_threads >= 1)
);
-- spark_sinks are send ports whose adapter is a Spark writer. Pipeline processes drain them in batches; hosts do not
-- dequeue them. programs are the subscriptions of programs (client.subscribe), which claim their messages themselves.
INSERT INTO management.service_classes (id, name) VALUES
    (1, 'orchestrations'), (4, 'messaging_in_process'), (16, 'caching'), (32, 'messaging_isolated'),
    (64, 'routing_failure_report'), (128, 'spark_sinks'), (256, 'programs');

-- A host is a group of processes that receive and send messages. It has its own database role and its own queues.
CREATE TABLE messagebox.hosts (
    id                         smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                       text NOT NULL,
    role_name                  text NOT NULL,
    is_default                 boolean NOT NULL DEFAULT false,
    created_at                 timestamptz NOT NULL DEFAULT now(),
    -- May publish on behalf of an originator; changed by set_trust.
    trusted                    boolean NOT NULL DEFAULT false,
    isolated                   boolean NOT NULL DEFAULT false,      -- only receives, and not on Spark
    -- Its instances neither receive nor send; messages wait in its queue.
    stopped                    boolean NOT NULL DEFAULT false,
    -- Throttling: the thresholds above which the host slows down, and the overrides of operators (THR-01 to THR-08).
    throttling                 jsonb NOT NULL
                                   DEFAULT '{"messages": 50000, "spool_multiplier": 10, "longest_delay": 300}',
    throttling_overrides       jsonb NOT NULL DEFAULT '{}'
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

-- The declared handlers (BizTalk: adm_SendHandler, adm_ReceiveHandler): an adapter that a host runs in one direction. A
-- host without a row runs all adapters that its type allows. If a host instance has as many messages of slow send ports
-- of an adapter in memory as the high watermark, it claims no more of them until it has fewer than the low watermark
-- (DEQ-17).
CREATE TABLE management.handlers (
    host_id         smallint NOT NULL REFERENCES messagebox.hosts ON DELETE CASCADE,
    adapter         text NOT NULL,                                  -- the kind of the adapter
    direction       text NOT NULL CHECK (direction IN ('receive', 'send')),
    high_watermark  integer NOT NULL,
    low_watermark   integer NOT NULL CHECK (low_watermark >= 1),
    PRIMARY KEY (host_id, adapter, direction),
    CHECK (low_watermark <= high_watermark)
);

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
    -- Why files with orchestrations are not loaded, by path.
    code_problems    jsonb NOT NULL DEFAULT '{}'
);

-- The deployed applications with their definitions.
CREATE TABLE management.applications (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name        text NOT NULL UNIQUE,
    definition  jsonb NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- The deployed property schemas. A property has one type, which all applications share.
CREATE TABLE messagebox.properties (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         text COLLATE "C" NOT NULL UNIQUE,                   -- namespace, '#', name
    value_type  smallint NOT NULL CHECK (value_type BETWEEN 1 AND 6),
    sensitive   boolean NOT NULL DEFAULT false                      -- values are never shown
);

-- Receive ports: one or more receive locations with the same settings.
CREATE TABLE management.receive_ports (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE,
    -- Publish an error message instead of suspending (FMR-01).
    route_failures  boolean NOT NULL DEFAULT false,
    -- An unauthenticated message is dropped, or suspended (keep).
    authentication  text NOT NULL DEFAULT 'none'
                    CHECK (authentication IN ('none', 'drop', 'keep'))
);

-- Receive locations: where and how a receive port receives messages. A host reads only its own receive locations.
CREATE TABLE management.receive_locations (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    receive_port_id  uuid NOT NULL REFERENCES management.receive_ports ON DELETE CASCADE,
    host_id          smallint NOT NULL REFERENCES messagebox.hosts,
    name             text NOT NULL UNIQUE,
    adapter          jsonb NOT NULL,
    adapter_kind     text GENERATED ALWAYS AS (adapter ->> 'kind') STORED,   -- for those who may not read the adapter
    pipeline         jsonb NOT NULL,
    -- Maps of the receive port, with the files they need.
    maps             jsonb NOT NULL DEFAULT '{"maps": [], "files": {}}',
    -- Null: one-way. The pipeline and the maps of responses.
    response         jsonb,
    uri              text NOT NULL,                                 -- BTS.InboundTransportLocation
    enabled          boolean NOT NULL DEFAULT true,
    schedule         jsonb,                                         -- when it receives messages; null: always
    -- Hosts it was moved away from that still have messages of it.
    former_host_ids  smallint[] NOT NULL DEFAULT '{}'
);

-- Send ports: where and how messages are sent. A host reads only its own send ports.
CREATE TABLE management.send_ports (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id   uuid NOT NULL REFERENCES management.applications,
    host_id          smallint NOT NULL REFERENCES messagebox.hosts,
    name             text NOT NULL UNIQUE,
    transport_id     uuid NOT NULL DEFAULT gen_random_uuid(),       -- BTS.SPTransportID
    -- Its definition, except what the other columns contain.
    settings         jsonb NOT NULL,
    two_way          boolean NOT NULL GENERATED ALWAYS AS ((settings ->> 'two_way')::boolean) STORED,
    adapter          jsonb NOT NULL,                                -- may contain secrets
    adapter_kind     text GENERATED ALWAYS AS (adapter ->> 'kind') STORED,   -- for those who may not read the adapter
    uri              text NOT NULL,                                 -- BTS.OutboundTransportLocation
    -- The adapter of the backup transport; null: none.
    backup_adapter   jsonb,
    backup_kind      text GENERATED ALWAYS AS (backup_adapter ->> 'kind') STORED,
    backup_uri       text,
    state            smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3),   -- 1 bound, 2 stopped, 3 started
    subscription_id  bigint,                                        -- of its own filter; null unless it is enlisted
    -- Hosts it was moved away from that still have messages of it.
    former_host_ids  smallint[] NOT NULL DEFAULT '{}',
    CHECK ((backup_adapter IS NULL) = (backup_uri IS NULL))
);

-- The open circuit breakers of send ports: their receiver is dead, and their messages wait in the scheduled queue
-- without a time. At each next_probe_at one of them, probe_seq, is sent. After a success the breaker is closed, and the
-- row is deleted when all messages are released. A port that was moved has a row for each host that has messages of it.
CREATE TABLE messagebox.open_circuits (
    port_id         uuid NOT NULL REFERENCES management.send_ports ON DELETE CASCADE,
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

-- Send port groups: send ports that receive the same messages. A group itself has no subscription. While a group and a
-- member are both enlisted, the member has one more subscription, with the filter of the group.
CREATE TABLE management.send_port_groups (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),     -- BTS.SPGroupID
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE,
    description     text NOT NULL DEFAULT '' CHECK (length(description) <= 256),
    filter          text,
    state           smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3)    -- 1 bound, 2 stopped, 3 started
);

-- The members of send port groups. A send port that is a member cannot be deleted (SPT-09).
CREATE TABLE management.send_port_group_members (
    group_id         uuid NOT NULL REFERENCES management.send_port_groups ON DELETE CASCADE,
    port_id          uuid NOT NULL REFERENCES management.send_ports,
    subscription_id  bigint,                                        -- null unless both are enlisted
    PRIMARY KEY (group_id, port_id)
);
-- The groups of a port, when it is enlisted or deleted.
CREATE INDEX ON management.send_port_group_members (port_id);

-- The removed send ports and receive locations. Their instances keep the name. A port or location that the same
-- application declares again gets its id back, and with it its instances.
CREATE TABLE management.removed_services (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('send port', 'location')),
    application  text NOT NULL,
    name         text NOT NULL,
    -- The receive port of a location; the name of a send port.
    port_name    text NOT NULL,
    -- Of a send port: callers may wait for its responses.
    two_way      boolean NOT NULL DEFAULT false,
    removed_at   timestamptz NOT NULL DEFAULT now(),
    -- What is still to be done with its instances. A command that is interrupted leaves it, and the next one continues.
    backlog      text NOT NULL DEFAULT 'keep' CHECK (backlog IN ('keep', 'reroute', 'terminate'))
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

-- The audit: what operators and administrators have done. The functions that operators may call add a row in the
-- transaction of the action. Administrators may add rows. Nobody but the owner may change or delete them.
CREATE TABLE management.audit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    login        text NOT NULL DEFAULT session_user,                -- not in the grants: PostgreSQL fills it
    -- The user of the command, as the command reports it; not verified.
    os_user      text DEFAULT nullif(current_setting('postroom.os_user', true), ''),
    action       text NOT NULL,                                     -- such as port.start
    target       text NOT NULL,                                     -- a name or an id
    reason       text DEFAULT nullif(current_setting('postroom.reason', true), ''),
    before       jsonb,
    after        jsonb
);
-- The history of one object.
CREATE INDEX audit_target ON management.audit (target, id);
