-- Subscriptions and their predicates. Activation subscriptions are matched by their predicates. Instance subscriptions
-- are found by a hash of their correlation values.

-- One row: the version of the routing. Every change of a subscription increases it.
CREATE TABLE messagebox.routing_version (
    version        bigint NOT NULL DEFAULT 1,
    -- An index in memory with an older version missed purged removals.
    rebuild_below  bigint NOT NULL DEFAULT 0,
    one_row        boolean PRIMARY KEY DEFAULT true CHECK (one_row)
);
INSERT INTO messagebox.routing_version DEFAULT VALUES;

-- Correlation types: the lists of properties that instance subscriptions correlate by. There are few, and publishers
-- keep them in memory. If all properties of a type are promoted in a message, the publisher looks up one hash.
CREATE TABLE messagebox.correlation_types (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    property_ids  integer[] NOT NULL UNIQUE CHECK (cardinality(property_ids) >= 1)      -- in ascending order
);
-- Responses correlate by these properties (RR-02). The type exists from the start: a new type changes the routing, and
-- a request must not wait for the exclusive routing lock.
WITH token AS (
    INSERT INTO messagebox.properties (key, value_type)
    VALUES ('BTS#EpmRRCorrelationToken', 1),
           ('BTS#RouteDirectToTP', 5)
    RETURNING id)
INSERT INTO messagebox.correlation_types (property_ids) SELECT array_agg(id ORDER BY id) FROM token;

-- Convoy sets: the properties that identify the messages of one convoy (ORC-20).
CREATE TABLE messagebox.convoy_sets (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id       smallint NOT NULL REFERENCES messagebox.hosts,
    property_ids  integer[] NOT NULL CHECK (cardinality(property_ids) BETWEEN 1 AND 3)
);

-- The instance that receives the messages with these values. The row exists from the first message until the instance
-- completes.
CREATE TABLE messagebox.convoy_set_instances (
    convoy_set_id  integer NOT NULL REFERENCES messagebox.convoy_sets,
    -- Of the values, because three long texts do not fit into an index.
    digest         bytea NOT NULL,
    value_1        text COLLATE "C" NOT NULL,
    value_2        text COLLATE "C",
    value_3        text COLLATE "C",
    instance_id    uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (convoy_set_id, digest)
);
-- The rows to delete when an instance completes.
CREATE INDEX convoy_set_instances_instance ON messagebox.convoy_set_instances (instance_id);

-- Subscriptions: which service receives which messages. An instance subscription has instance_id and all of
-- correlation_*, and no predicates. An activation subscription has predicates and none of these columns. The values of
-- an instance subscription are only in correlation_values, which only administrators read. They are not in the filter,
-- which operators and all hosts read.
CREATE TABLE messagebox.subscriptions (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id              smallint NOT NULL REFERENCES messagebox.hosts,
    service_class        messagebox.service_class NOT NULL,
    service_id           uuid NOT NULL,                -- the id of the send port, if it is one
    service_name         text NOT NULL,
    instance_id          uuid,                         -- null: activation subscription
    priority             smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    -- That of its service, which is not bound. Matches of a stopped one are suspended.
    state                messagebox.service_state NOT NULL DEFAULT 'stopped' CHECK (state <> 'bound'),
    ordered              boolean NOT NULL DEFAULT false,
    request_response     boolean NOT NULL DEFAULT false,
    filter               text NOT NULL DEFAULT '',     -- for display; the predicates are matched
    created_at           timestamptz NOT NULL DEFAULT now(),
    version              bigint NOT NULL DEFAULT 0,    -- the routing version of its last change
    removed_at           timestamptz,                  -- tombstone: it matches no message, and a job purges it
    correlation_type_id  integer,
    correlation_values   text[] COLLATE "C",           -- value keys, in the order of the type's property ids
    correlation_hash     bigint,
    convoy_set_id        integer REFERENCES messagebox.convoy_sets,
    -- Activation subscription: only this transaction may add predicates.
    created_in           xid8,
    -- The next number of the queues when it was created, or when its predecessor with the same filter was. Messages
    -- with a lower number were not routed to it.
    first_seq            bigint NOT NULL DEFAULT 1,
    -- The send port group whose filter it has; the service is the member.
    group_id             uuid,
    group_name           text,
    -- Of a request that waits for its response: the host instance that holds the caller. Only this one gets the
    -- response (RR-03).
    for_host_instance    integer,
    -- Of a request with an idempotency key: it waits until then even if its host instance ends, so that a repeated
    -- request can take it over.
    kept_until           timestamptz,
    CONSTRAINT instance_or_activation CHECK (
        CASE WHEN instance_id IS NULL
             THEN num_nonnulls(correlation_type_id, correlation_values, correlation_hash) = 0
             ELSE num_nonnulls(correlation_type_id, correlation_values, correlation_hash) = 3 AND convoy_set_id IS NULL
        END),
    CONSTRAINT values_are_in_no_filter CHECK (instance_id IS NULL OR filter = '')
);
-- The subscriptions of a port.
CREATE INDEX ON messagebox.subscriptions (service_id);
-- The activation subscriptions of a service, and those through a send port group. An orchestration may have millions of
-- instance subscriptions.
CREATE INDEX subscriptions_of_service ON messagebox.subscriptions (service_id) WHERE instance_id IS NULL;
CREATE INDEX subscriptions_group ON messagebox.subscriptions (group_id) WHERE group_id IS NOT NULL;
-- Routing indexes in memory read the changes since their version. They contain no instance subscriptions, of which
-- there may be millions.
CREATE INDEX subscriptions_version ON messagebox.subscriptions (version) WHERE instance_id IS NULL;
-- A publish looks up instance subscriptions.
CREATE INDEX subscriptions_correlation ON messagebox.subscriptions (correlation_hash)
    WHERE instance_id IS NOT NULL AND removed_at IS NULL;
-- The subscriptions of an instance, when it completes.
CREATE INDEX subscriptions_instance ON messagebox.subscriptions (instance_id) WHERE instance_id IS NOT NULL;
-- The requests that wait at host instances that are dead.
CREATE INDEX subscriptions_host_instance ON messagebox.subscriptions (for_host_instance)
    WHERE for_host_instance IS NOT NULL AND removed_at IS NULL;
-- The job that purges removed subscriptions.
CREATE INDEX subscriptions_removed ON messagebox.subscriptions (removed_at) WHERE removed_at IS NOT NULL;
-- `explain` reads all activation subscriptions, among millions of instance subscriptions.
CREATE INDEX subscriptions_activation ON messagebox.subscriptions (id) WHERE instance_id IS NULL;
-- A listing is by service, and ends at its limit.
CREATE INDEX subscriptions_service_name ON messagebox.subscriptions (service_name, id) WHERE removed_at IS NULL;

-- The AND-groups of filters. A filter is an OR of its groups.
CREATE TABLE messagebox.predicate_groups (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id  bigint NOT NULL REFERENCES messagebox.subscriptions,
    number           integer NOT NULL,
    predicate_count  integer NOT NULL DEFAULT 0,       -- number of predicates, which must all match
    has_first_pass   boolean NOT NULL DEFAULT false,   -- one of them is in first_pass_predicates
    UNIQUE (subscription_id, number)
);
-- The groups without an equality for the first pass. Each is a candidate for every message.
CREATE INDEX ON messagebox.predicate_groups (id) WHERE NOT has_first_pass;

-- The predicates of the groups. Each is in one of ten tables. These are partitions of this table, so one statement
-- reads them all.
CREATE TABLE messagebox.predicates (
    predicate_table  smallint NOT NULL,
    group_id         bigint NOT NULL,
    property_id      integer NOT NULL,
    operator         smallint NOT NULL CHECK (operator BETWEEN 0 AND 7),
    value_text       text COLLATE "C",
    value_int        bigint,                           -- int; bool as 0 or 1; datetime in microseconds since 1970 UTC
    value_decimal    numeric,
    value_float      double precision,
    -- Equal values have the same text: one index for all types.
    value_key        text COLLATE "C" GENERATED ALWAYS AS (
                         coalesce(value_text, value_int::text, trim_scale(value_decimal)::text, value_float::text)
                     ) STORED
) PARTITION BY LIST (predicate_table);

CREATE TABLE messagebox.bitwise_and_predicates             PARTITION OF messagebox.predicates FOR VALUES IN (1);
CREATE TABLE messagebox.equals_predicates                  PARTITION OF messagebox.predicates FOR VALUES IN (2);
CREATE TABLE messagebox.equals_predicates_2nd_pass         PARTITION OF messagebox.predicates FOR VALUES IN (3);
CREATE TABLE messagebox.exists_predicates                  PARTITION OF messagebox.predicates FOR VALUES IN (4);
CREATE TABLE messagebox.first_pass_predicates              PARTITION OF messagebox.predicates FOR VALUES IN (5);
CREATE TABLE messagebox.greater_than_or_equals_predicates  PARTITION OF messagebox.predicates FOR VALUES IN (6);
CREATE TABLE messagebox.greater_than_predicates            PARTITION OF messagebox.predicates FOR VALUES IN (7);
CREATE TABLE messagebox.less_than_or_equals_predicates     PARTITION OF messagebox.predicates FOR VALUES IN (8);
CREATE TABLE messagebox.less_than_predicates               PARTITION OF messagebox.predicates FOR VALUES IN (9);
CREATE TABLE messagebox.not_equals_predicates              PARTITION OF messagebox.predicates FOR VALUES IN (10);

-- The second pass, and reading a filter.
CREATE INDEX ON messagebox.predicates (group_id);
-- The first pass.
CREATE INDEX ON messagebox.first_pass_predicates (property_id, value_key);

-- The application properties of hosts. A host receives a message only if each message predicate equals one of them
-- (SEC-01).
CREATE TABLE messagebox.application_properties (
    host_id       smallint NOT NULL REFERENCES messagebox.hosts,
    property_key  text COLLATE "C" NOT NULL,
    value         text COLLATE "C" NOT NULL,
    PRIMARY KEY (host_id, property_key, value)
);
