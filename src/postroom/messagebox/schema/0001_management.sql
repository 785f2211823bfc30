-- What the source document keeps in the Management database: hosts, service classes, and what applications declare.

CREATE SCHEMA management;
CREATE SCHEMA messagebox;

-- One row: who this MessageBox is. Roles belong to the whole server, so their names carry this id.
CREATE TABLE management.message_box (
    id          text PRIMARY KEY DEFAULT substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
    created_at  timestamptz NOT NULL DEFAULT now(),
    one_row     boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO management.message_box DEFAULT VALUES;

-- adm_ServiceClass: who may create subscriptions and receive messages, how often it polls an empty queue, and with
-- how many threads it dequeues.
CREATE TABLE management.service_classes (
    id                smallint PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    polling_interval  interval NOT NULL DEFAULT '500 ms' CHECK (polling_interval > '0'),
    dequeue_threads   smallint NOT NULL DEFAULT 5 CHECK (dequeue_threads >= 1)
);
INSERT INTO management.service_classes (id, name) VALUES
    (1, 'orchestrations'), (4, 'messaging_in_process'), (16, 'caching'), (32, 'messaging_isolated'),
    (64, 'routing_failure_report');

CREATE TABLE management.hosts (
    id          smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL,
    role_name   text NOT NULL,
    is_default  boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX ON management.hosts (lower(name));              -- queue tables are named after the host
CREATE UNIQUE INDEX ON management.hosts (is_default) WHERE is_default;

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
    value_type  smallint NOT NULL CHECK (value_type BETWEEN 1 AND 6)
);

CREATE TABLE management.receive_ports (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE
);

CREATE TABLE management.receive_locations (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    receive_port_id  uuid NOT NULL REFERENCES management.receive_ports ON DELETE CASCADE,
    host_id          smallint NOT NULL REFERENCES management.hosts,
    name             text NOT NULL UNIQUE,
    adapter          jsonb NOT NULL,
    pipeline         jsonb NOT NULL,
    uri              text NOT NULL,                                 -- BTS.InboundTransportLocation
    enabled          boolean NOT NULL DEFAULT true
);

CREATE TABLE management.send_ports (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id   uuid NOT NULL REFERENCES management.applications,
    host_id          smallint NOT NULL REFERENCES management.hosts,
    name             text NOT NULL UNIQUE,
    transport_id     uuid NOT NULL DEFAULT gen_random_uuid(),       -- BTS.SPTransportID
    adapter          jsonb NOT NULL,
    uri              text NOT NULL,                                 -- BTS.OutboundTransportLocation
    filter           text,
    priority         smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    retry_count      integer NOT NULL DEFAULT 3 CHECK (retry_count BETWEEN 0 AND 1000),
    retry_interval   interval NOT NULL DEFAULT '5 min' CHECK (retry_interval >= '0'),
    state            smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3),   -- 1 bound, 2 stopped, 3 started
    subscription_id  bigint
);

-- A host instance is one process. It holds a session advisory lock on its id; a lock that is gone means death.
CREATE TABLE management.host_instances (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint NOT NULL REFERENCES management.hosts,
    server      text NOT NULL,
    pid         integer NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    dead_since  timestamptz                                          -- when its lock was first seen to be gone
);

-- What the jobs did last, for people.
CREATE TABLE management.job_runs (
    name         text PRIMARY KEY,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz,
    runs         bigint NOT NULL DEFAULT 0,
    rows_last    bigint,
    rows_total   bigint NOT NULL DEFAULT 0,
    error        text
);
