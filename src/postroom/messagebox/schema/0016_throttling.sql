-- Back-pressure: how much a host lets wait before it takes in less (THR-04, THR-05).

ALTER TABLE management.hosts
    ADD COLUMN throttle_messages integer NOT NULL DEFAULT 50000 CHECK (throttle_messages >= 0),    -- 0: never
    ADD COLUMN throttle_spool_multiplier double precision NOT NULL DEFAULT 10 CHECK (throttle_spool_multiplier >= 0),
    ADD COLUMN throttle_longest_delay interval NOT NULL DEFAULT '300 seconds' CHECK (throttle_longest_delay >= '0');

-- One row: how much waits, as it was last measured; current_load measures again when that is a second old.
CREATE TABLE management.load (
    queued       bigint NOT NULL DEFAULT 0,          -- rows in all work, scheduled and suspended queues
    spooled      bigint NOT NULL DEFAULT 0,          -- rows in the spool
    measured_at  timestamptz NOT NULL DEFAULT '-infinity',
    counts_from  timestamptz,                        -- since when the server's statistics count, when they were last set right
    one_row      boolean NOT NULL DEFAULT true UNIQUE CHECK (one_row)
);
INSERT INTO management.load DEFAULT VALUES;
