-- Management: the tables of BizTalk's Management database: service classes, and the artifacts of applications. A
-- host_id is that of a row in messagebox.hosts. There is no foreign key, because a MessageBox stands alone: the row of
-- the artifact in messagebox.services has one. That row has the state, too.

-- How hosts dequeue the messages of each service class (BizTalk: adm_ServiceClass).
CREATE TABLE management.service_classes (
    name              messagebox.service_class PRIMARY KEY,
    polling_interval  interval NOT NULL DEFAULT '500 ms' CHECK (polling_interval > '0'),   -- of an empty queue
    dequeue_threads   smallint NOT NULL DEFAULT 5 CHECK (dequeue_threads >= 1)
);
INSERT INTO management.service_classes (name) SELECT unnest(enum_range(NULL::messagebox.service_class));

-- The deployed applications. The definition of an application is the sum of its artifacts, and of what it says about
-- properties and hosts, which belong to no application.
CREATE TABLE management.applications (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name        text NOT NULL UNIQUE,
    properties  jsonb NOT NULL DEFAULT '[]',
    hosts       jsonb NOT NULL DEFAULT '[]',
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- The definition of an artifact is what its application declares, as JSON. Generated columns are what SQL needs of it.

-- Receive ports: one or more receive locations with the same settings. A host reads those of its receive locations.
CREATE TABLE management.receive_ports (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id  uuid NOT NULL REFERENCES management.applications,
    definition      jsonb NOT NULL,                                 -- without its locations
    name            text NOT NULL UNIQUE GENERATED ALWAYS AS (definition ->> 'name') STORED
);

-- Receive locations: where and how a receive port receives messages. A host reads only its own receive locations.
CREATE TABLE management.receive_locations (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    receive_port_id  uuid NOT NULL REFERENCES management.receive_ports ON DELETE CASCADE,
    host_id          smallint NOT NULL,
    definition       jsonb NOT NULL,                                -- may contain secrets of the adapter
    name             text NOT NULL UNIQUE GENERATED ALWAYS AS (definition ->> 'name') STORED,
    adapter_kind     text GENERATED ALWAYS AS (definition #>> '{adapter,kind}') STORED,
    -- The definition for those who may not read the adapter: only the kind of it.
    redacted         jsonb NOT NULL GENERATED ALWAYS AS (
        jsonb_set(definition, '{adapter}', jsonb_object(ARRAY['kind', definition #>> '{adapter,kind}']))) STORED,
    uri              text NOT NULL,                                 -- BTS.InboundTransportLocation
    enabled          boolean NOT NULL DEFAULT true,
    schedule         jsonb                                          -- when it receives messages; null: always
);

-- Send ports: where and how messages are sent. A host reads only its own send ports.
CREATE TABLE management.send_ports (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    application_id   uuid NOT NULL REFERENCES management.applications,
    host_id          smallint NOT NULL,
    transport_id     uuid NOT NULL DEFAULT gen_random_uuid(),       -- BTS.SPTransportID
    definition       jsonb NOT NULL,                                -- may contain secrets of adapters
    name             text NOT NULL UNIQUE GENERATED ALWAYS AS (definition ->> 'name') STORED,
    two_way          boolean NOT NULL GENERATED ALWAYS AS ((definition ->> 'two_way')::boolean) STORED,
    adapter_kind     text GENERATED ALWAYS AS (definition #>> '{adapter,kind}') STORED,
    backup_kind      text GENERATED ALWAYS AS (definition #>> '{backup,adapter,kind}') STORED,   -- null: no backup
    -- The definition for those who may not read the adapters: only the kinds of them.
    redacted         jsonb NOT NULL GENERATED ALWAYS AS (
        jsonb_set(
            jsonb_set(definition, '{adapter}', jsonb_object(ARRAY['kind', definition #>> '{adapter,kind}'])),
            '{backup,adapter}', jsonb_object(ARRAY['kind', definition #>> '{backup,adapter,kind}']), false)) STORED,
    uri              text NOT NULL,                                 -- BTS.OutboundTransportLocation
    backup_uri       text                                           -- null: no backup
);

-- Send port groups: send ports that receive the same messages. A group itself has no subscription. While a group and a
-- member are both enlisted, the member has one more subscription, with the filter of the group.
CREATE TABLE management.send_port_groups (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),     -- BTS.SPGroupID
    application_id  uuid NOT NULL REFERENCES management.applications,
    definition      jsonb NOT NULL,
    name            text NOT NULL UNIQUE GENERATED ALWAYS AS (definition ->> 'name') STORED
);

-- The members of send port groups. A send port that is a member cannot be deleted (SPT-09).
CREATE TABLE management.send_port_group_members (
    group_id  uuid NOT NULL REFERENCES management.send_port_groups ON DELETE CASCADE,
    port_id   uuid NOT NULL REFERENCES management.send_ports,
    PRIMARY KEY (group_id, port_id)
);
-- The groups of a port, when it is enlisted or deleted.
CREATE INDEX ON management.send_port_group_members (port_id);

-- Orchestrations. The code is in the file of the application, never in the database. Versions of one orchestration are
-- declared side by side. Only the newest one is activated by messages, and the others finish their instances.
CREATE TABLE management.orchestrations (
    id               uuid PRIMARY KEY,
    application_id   uuid NOT NULL REFERENCES management.applications,
    host_id          smallint NOT NULL,
    definition       jsonb NOT NULL,
    name             text NOT NULL GENERATED ALWAYS AS (definition ->> 'name') STORED,
    version          integer NOT NULL GENERATED ALWAYS AS ((definition ->> 'version')::integer) STORED,
    -- The keys of the properties. All versions with the same ones share a convoy set.
    convoy           jsonb NOT NULL GENERATED ALWAYS AS (jsonb_path_query_array(definition, '$.convoy[*].key')) STORED,
    convoy_set_id    integer,
    is_newest        boolean NOT NULL,
    UNIQUE (name, version)
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
