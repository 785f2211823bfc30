-- Subscriptions and their predicates. A filter is an OR of AND-groups; each predicate of a group stands in exactly
-- one of the ten predicate tables, which are partitions of one, so that one statement reads all.

CREATE TABLE messagebox.routing_version (
    version        bigint NOT NULL DEFAULT 1,
    rebuild_below  bigint NOT NULL DEFAULT 0,          -- an index older than this missed removals that are purged
    one_row         boolean PRIMARY KEY DEFAULT true CHECK (one_row)
);
INSERT INTO messagebox.routing_version DEFAULT VALUES;

CREATE TABLE messagebox.subscriptions (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id           smallint NOT NULL REFERENCES management.hosts,
    service_class     smallint NOT NULL REFERENCES management.service_classes,
    service_id        uuid NOT NULL,
    service_name      text NOT NULL,
    instance_id       uuid,                                          -- null: activation; else instance subscription
    priority          smallint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
    state             smallint NOT NULL DEFAULT 2 CHECK (state BETWEEN 1 AND 3),  -- 1 started, 2 stopped, 3 disabled
    ordered           boolean NOT NULL DEFAULT false,
    request_response  boolean NOT NULL DEFAULT false,
    filter            text NOT NULL DEFAULT '',                      -- for people; the predicates are what is matched
    valid_from        timestamptz,
    start_window      time,
    end_window        time,
    created_at        timestamptz NOT NULL DEFAULT now(),
    version           bigint NOT NULL DEFAULT 0,                     -- the routing version that changed it last
    removed_at        timestamptz                                    -- removed: never matched; purged by a job
);
CREATE INDEX ON messagebox.subscriptions (service_id);
CREATE INDEX ON messagebox.subscriptions (version);                  -- indexes in memory catch up by version

CREATE TABLE messagebox.predicate_groups (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id  bigint NOT NULL REFERENCES messagebox.subscriptions,
    number           integer NOT NULL,
    predicate_count  integer NOT NULL DEFAULT 0,
    has_first_pass   boolean NOT NULL DEFAULT false,
    UNIQUE (subscription_id, number)
);
-- Groups that the first pass cannot find by an equality: each is a candidate for every message.
CREATE INDEX ON messagebox.predicate_groups (id) WHERE NOT has_first_pass;

-- Text is in value_text; int, bool (0 or 1) and datetime (microseconds since 1970 UTC) in value_int. value_key is the
-- one text that equal values share, so that one index serves equality of every type.
CREATE TABLE messagebox.predicates (
    predicate_table  smallint NOT NULL,
    group_id         bigint NOT NULL,
    property_id      integer NOT NULL,
    operator         smallint NOT NULL CHECK (operator BETWEEN 0 AND 7),
    value_text       text COLLATE "C",
    value_int        bigint,
    value_decimal    numeric,
    value_float      double precision,
    value_key        text COLLATE "C" GENERATED ALWAYS AS (
                         coalesce(value_text, value_int::text, trim_scale(value_decimal)::text, value_float::text)) STORED
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

CREATE INDEX ON messagebox.predicates (group_id);                            -- pass two, and reading a filter
CREATE INDEX ON messagebox.first_pass_predicates (property_id, value_key);   -- pass one

-- Transient: the properties and predicates of the batch that is being published. Never survives its transaction.
CREATE UNLOGGED TABLE messagebox.message_properties (
    batch_id       uuid NOT NULL,
    message_id     uuid NOT NULL,
    property_id    integer NOT NULL,
    value_text     text COLLATE "C",
    value_int      bigint,
    value_decimal  numeric,
    value_float    double precision,
    value_key      text COLLATE "C" GENERATED ALWAYS AS (
                       coalesce(value_text, value_int::text, trim_scale(value_decimal)::text, value_float::text)) STORED,
    PRIMARY KEY (batch_id, message_id, property_id)
);

CREATE UNLOGGED TABLE messagebox.message_predicates (
    batch_id      uuid NOT NULL,
    message_id    uuid NOT NULL,
    property_key  text COLLATE "C" NOT NULL,
    value         text COLLATE "C" NOT NULL,
    PRIMARY KEY (batch_id, message_id, property_key, value)
);

-- What a host can show for itself; message predicates must equal one of these (SEC-01).
CREATE TABLE messagebox.application_properties (
    host_id       smallint NOT NULL REFERENCES management.hosts,
    property_key  text COLLATE "C" NOT NULL,
    value         text COLLATE "C" NOT NULL,
    PRIMARY KEY (host_id, property_key, value)
);
