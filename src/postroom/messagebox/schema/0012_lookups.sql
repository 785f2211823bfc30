-- Lookups: the service of the service class caching. A lookup keeps the newest message of each key, until a message
-- without content deletes it. Components, maps, orchestrations and programs read it.

-- One service for all lookups of a host. One thread is enough, because the messages of a lookup are applied one batch
-- after the other.
UPDATE management.service_classes SET dequeue_threads = 1 WHERE name = 'caching';

ALTER TABLE messagebox.services DROP CONSTRAINT services_kind_check;
ALTER TABLE messagebox.services ADD CONSTRAINT services_kind_check
    CHECK (kind IN ('send port', 'location', 'send port group', 'orchestration', 'lookup'));

-- The declared lookups.
CREATE TABLE management.lookups (
    id              uuid PRIMARY KEY,
    application_id  uuid NOT NULL REFERENCES management.applications,
    host_id         smallint NOT NULL,
    definition      jsonb NOT NULL,
    name            text NOT NULL UNIQUE GENERATED ALWAYS AS (definition ->> 'name') STORED
);

-- The content of lookups. A removed lookup has no row. If it is declared again, it gets another id and starts empty.
CREATE TABLE messagebox.lookup_contents (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id    uuid NOT NULL UNIQUE REFERENCES messagebox.services,
    key_property  text COLLATE "C" NOT NULL,                -- of which each message has to promote a value
    key_type      smallint NOT NULL CHECK (key_type BETWEEN 1 AND 6),
    -- Increased by each transaction that changes entries, which locks the row until its commit. So a reader that has
    -- seen a version has seen all changes up to it.
    version       bigint NOT NULL DEFAULT 0
);

-- The newest message of each key. The entry is a copy: it does not keep the message in the spool.
CREATE TABLE messagebox.lookup_entries (
    lookup_id       integer NOT NULL REFERENCES messagebox.lookup_contents ON DELETE CASCADE,
    key             text COLLATE "C" NOT NULL,              -- the value key of the property
    version         bigint NOT NULL,                        -- of the lookup, by its last change
    -- The number of the message in the queue. Messages with a lower number are older, and do not change the entry.
    seq             bigint NOT NULL,
    message_id      uuid NOT NULL,
    applied_at      timestamptz NOT NULL DEFAULT now(),
    -- Null: the entry was deleted. The row stays, so that an older message cannot bring the entry back.
    context         jsonb,
    originator_sid  text,
    originator_pid  text,
    part_name       text,
    content_type    text,
    charset         text,
    body            bytea,
    PRIMARY KEY (lookup_id, key)
);
-- The keys that have changed since a version.
CREATE INDEX lookup_entries_version ON messagebox.lookup_entries (lookup_id, version);
