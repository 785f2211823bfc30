-- Instance subscriptions are found by a hash of their correlation values; convoys are kept together by convoy sets.

-- A correlation type is a set of properties by which instance subscriptions wait. There are few, and publishers keep
-- them in memory: for a message that has all properties of a type promoted they look up one hash.
CREATE TABLE messagebox.correlation_types (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    property_ids  integer[] NOT NULL UNIQUE CHECK (cardinality(property_ids) >= 1)      -- in ascending order
);

-- The properties that keep the messages of one convoy together (ORC-20).
CREATE TABLE messagebox.convoy_sets (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id       smallint NOT NULL REFERENCES management.hosts,
    property_ids  integer[] NOT NULL CHECK (cardinality(property_ids) BETWEEN 1 AND 3)
);

-- Which instance has which values, from the first message on until the instance completes. The digest stands for the
-- values in the index: three long texts would not fit into one.
CREATE TABLE messagebox.convoy_set_instances (
    convoy_set_id  integer NOT NULL REFERENCES messagebox.convoy_sets,
    digest         bytea NOT NULL,
    value_1        text COLLATE "C" NOT NULL,
    value_2        text COLLATE "C",
    value_3        text COLLATE "C",
    instance_id    uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (convoy_set_id, digest)
);
CREATE INDEX convoy_set_instances_instance ON messagebox.convoy_set_instances (instance_id);

-- An instance subscription has all four of instance_id and correlation_*, and no predicates; an activation subscription
-- has none of them. correlation_values are value keys in the order of the type's property ids.
ALTER TABLE messagebox.subscriptions
    ADD COLUMN correlation_type_id integer,
    ADD COLUMN correlation_values text[] COLLATE "C",
    ADD COLUMN correlation_hash bigint,
    ADD COLUMN convoy_set_id integer REFERENCES messagebox.convoy_sets,
    ADD COLUMN created_in xid8,                        -- of an activation subscription: predicates come with it or never
    ADD CONSTRAINT instance_or_activation CHECK (
        CASE WHEN instance_id IS NULL
             THEN num_nonnulls(correlation_type_id, correlation_values, correlation_hash) = 0
             ELSE num_nonnulls(correlation_type_id, correlation_values, correlation_hash) = 3 AND convoy_set_id IS NULL
        END);

CREATE INDEX subscriptions_correlation ON messagebox.subscriptions (correlation_hash)
    WHERE instance_id IS NOT NULL AND removed_at IS NULL;                                -- finding, in a publish
CREATE INDEX subscriptions_instance ON messagebox.subscriptions (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX subscriptions_removed ON messagebox.subscriptions (removed_at) WHERE removed_at IS NOT NULL;  -- purging
-- Indexes in memory catch up by version, and instance subscriptions, which come and go by the million, have none.
DROP INDEX messagebox.subscriptions_version_idx;
CREATE INDEX subscriptions_version ON messagebox.subscriptions (version) WHERE instance_id IS NULL;
CREATE INDEX subscriptions_activation ON messagebox.subscriptions (id) WHERE instance_id IS NULL;        -- explaining
-- A listing is by service, and ends at its limit.
CREATE INDEX subscriptions_service_name ON messagebox.subscriptions (service_name, id) WHERE removed_at IS NULL;

-- A queue row of task 4 belongs to an instance that has others: found by subscription of the instance, or by convoy.
CREATE INDEX work_queue_instance ON messagebox.work_queue (instance_id) WHERE task = 4;
