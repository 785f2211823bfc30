-- Messages. A message is stored once. Each service that received it refers to it. It is deleted when no reference is
-- left.

-- One row per message.
CREATE TABLE messagebox.spool (
    message_id      uuid PRIMARY KEY,
    part_ids        uuid[] NOT NULL,                       -- in order; a part may belong to several messages
    body_part_id    uuid,
    body_part_name  text,
    context         jsonb NOT NULL,
    published_at    timestamptz NOT NULL DEFAULT now(),
    published_by    text NOT NULL DEFAULT session_user,    -- the login; it cannot be forged
    -- The originator, which only a trusted host can write. Null: the originator is the publishing login, and Guest. It
    -- is not in the context, because every publisher can write any value there.
    originator_sid  text,
    originator_pid  text,
    -- True: the message has one reference, which the row counts itself. The ref-count logs have no row for it (0005).
    only_reference  boolean NOT NULL DEFAULT false,
    counted_in      xid8 NOT NULL DEFAULT pg_current_xact_id()  -- the transaction that counted this reference
);

-- One row per part.
CREATE TABLE messagebox.parts (
    part_id       uuid PRIMARY KEY,
    name          text NOT NULL,
    content_type  text NOT NULL,
    charset       text,
    size          bigint NOT NULL,
    body          bytea,                                   -- null: the content is in fragments
    only_reference boolean NOT NULL DEFAULT false,         -- as in the spool; never of a part in fragments
    counted_in    xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- The content of large parts, in fragments.
CREATE TABLE messagebox.fragments (
    part_id  uuid NOT NULL,
    number   integer NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (part_id, number)
);

-- Bodies are not compressed: they are written once and read a few times, so compression costs more than it saves.
ALTER TABLE messagebox.parts ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.fragments ALTER COLUMN body SET STORAGE EXTERNAL;
-- A body of up to 4 KB is stored in its row. Outside of it, the body needs a row of another table and an index entry.
-- This makes publishing of bodies between 2 and 4 KB about a fifth faster.
ALTER TABLE messagebox.parts SET (toast_tuple_target = 4080);

-- No statistics of the wide columns: no condition compares them, and they are most of the work of an ANALYZE, which a
-- load causes every few seconds.
ALTER TABLE messagebox.spool ALTER COLUMN context SET STATISTICS 0, ALTER COLUMN part_ids SET STATISTICS 0;
ALTER TABLE messagebox.parts ALTER COLUMN body SET STATISTICS 0;

-- Transient: the promoted properties of the batch that is being published. The publishing transaction deletes them.
CREATE UNLOGGED TABLE messagebox.message_properties (
    batch_id       uuid NOT NULL,
    message_id     uuid NOT NULL,
    property_id    integer NOT NULL,
    value_text     text COLLATE "C",
    value_int      bigint,
    value_decimal  numeric,
    value_float    double precision,
    value_key      text COLLATE "C" GENERATED ALWAYS AS (
                       coalesce(value_text, value_int::text, trim_scale(value_decimal)::text, value_float::text)
                   ) STORED,
    PRIMARY KEY (batch_id, message_id, property_id)
);

-- Transient: the message predicates of the batch, which the hosts of its receivers must fulfil (SEC-01).
CREATE UNLOGGED TABLE messagebox.message_predicates (
    batch_id      uuid NOT NULL,
    message_id    uuid NOT NULL,
    property_key  text COLLATE "C" NOT NULL,
    value         text COLLATE "C" NOT NULL,
    PRIMARY KEY (batch_id, message_id, property_key, value)
);
