-- Messages: stored once, referenced by every service that received them, deleted when no reference is left.

CREATE TABLE messagebox.spool (
    message_id      uuid PRIMARY KEY,
    part_ids        uuid[] NOT NULL,                  -- in order; a part may belong to several messages
    body_part_id    uuid,
    body_part_name  text,
    context         jsonb NOT NULL,
    published_at    timestamptz NOT NULL DEFAULT now(),
    published_by    text NOT NULL DEFAULT session_user     -- from the login: cannot be forged
);

CREATE TABLE messagebox.parts (
    part_id       uuid PRIMARY KEY,
    name          text NOT NULL,
    content_type  text NOT NULL,
    charset       text,
    size          bigint NOT NULL,
    body          bytea                                -- null: the content stands in fragments
);

CREATE TABLE messagebox.fragments (
    part_id  uuid NOT NULL,
    number   integer NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (part_id, number)
);
-- Bodies are written once and read a few times: compressing them costs more than it saves.
ALTER TABLE messagebox.parts ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.fragments ALTER COLUMN body SET STORAGE EXTERNAL;

-- References, as two alternating append-only logs of each kind: writers append deltas to the active log and never
-- update a shared counter. No index: a fold reads a log whole.
CREATE TABLE messagebox.message_ref_count_log_1 (message_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE messagebox.message_ref_count_log_2 (message_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE messagebox.part_ref_count_log_1 (part_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE messagebox.part_ref_count_log_2 (part_id uuid NOT NULL, delta integer NOT NULL);

CREATE TABLE messagebox.active_ref_count_log (
    kind    text PRIMARY KEY CHECK (kind IN ('message', 'part')),
    active  smallint NOT NULL DEFAULT 1 CHECK (active IN (1, 2))
);
INSERT INTO messagebox.active_ref_count_log (kind) VALUES ('message'), ('part');

CREATE TABLE messagebox.message_ref_count_log_totals (message_id uuid PRIMARY KEY, total bigint NOT NULL);
CREATE TABLE messagebox.part_ref_count_log_totals (part_id uuid PRIMARY KEY, total bigint NOT NULL);
CREATE TABLE messagebox.message_zero_sum (message_id uuid PRIMARY KEY);
CREATE TABLE messagebox.part_zero_sum (part_id uuid PRIMARY KEY);

-- What was published, kept for days: a unit of work that comes again finds its receipt and is left out.
CREATE TABLE messagebox.receipts (
    unit          uuid NOT NULL,
    chunk         integer NOT NULL DEFAULT 0,
    published_at  timestamptz NOT NULL DEFAULT now(),
    outcome       jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (unit, chunk)
);
CREATE INDEX ON messagebox.receipts (published_at);          -- for the job that forgets old ones

-- The files that receive locations have claimed and not yet finished with.
CREATE TABLE messagebox.claims (
    interchange_id  uuid PRIMARY KEY,
    number          bigint,                                  -- the stream's offset; given when the claim is complete
    location_id     uuid NOT NULL,
    name            text NOT NULL,
    path            text NOT NULL,
    size            bigint,
    modified_ns     bigint,
    state           smallint NOT NULL DEFAULT 1,             -- 1 claiming, 2 claimed, 3 published, 4 missing, 5 failed
    problem         text,
    claimed_at      timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX ON messagebox.claims (location_id, number);
CREATE SEQUENCE messagebox.claim_number;
