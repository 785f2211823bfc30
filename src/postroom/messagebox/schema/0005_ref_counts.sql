-- Reference counts: two alternating append-only logs for messages, and two for parts. Writers append deltas to the
-- active log and never update a shared counter. A fold moves the rows of the other log into the totals.
-- Most messages have one reference. It is counted by the row of the message and by those of its parts (0003:
-- only_reference), and by no log. A transaction that adds a reference to such a message counts it in the logs first.

-- Every transaction has its own count of a message: a queue row and the +1 for it have the same counted_in, and so has
-- the -1 that a function appends when it deletes the queue row. Hosts append to the logs themselves (COPY), but cannot
-- set counted_in. So a host cannot lower the count of another publisher, even if it knows the id of the message.

-- The logs. They have no index, because a fold reads all rows of a log.
CREATE TABLE messagebox.message_ref_count_log_1 (
    message_id uuid NOT NULL, delta integer NOT NULL, counted_in xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE TABLE messagebox.message_ref_count_log_2 (
    message_id uuid NOT NULL, delta integer NOT NULL, counted_in xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE TABLE messagebox.part_ref_count_log_1 (
    part_id uuid NOT NULL, delta integer NOT NULL, counted_in xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE TABLE messagebox.part_ref_count_log_2 (
    part_id uuid NOT NULL, delta integer NOT NULL, counted_in xid8 NOT NULL DEFAULT pg_current_xact_id());

-- The active log of each pair.
CREATE TABLE messagebox.active_ref_count_log (
    kind    text PRIMARY KEY CHECK (kind IN ('message', 'part')),
    active  smallint NOT NULL DEFAULT 1 CHECK (active IN (1, 2))
);
INSERT INTO messagebox.active_ref_count_log (kind) VALUES ('message'), ('part');

-- The sums of the folded deltas. An id is free when none of its counts is positive.
CREATE TABLE messagebox.message_ref_count_log_totals (
    message_id uuid, counted_in xid8, total bigint NOT NULL, PRIMARY KEY (message_id, counted_in));
CREATE TABLE messagebox.part_ref_count_log_totals (
    part_id uuid, counted_in xid8, total bigint NOT NULL, PRIMARY KEY (part_id, counted_in));

-- The ids of which a count came to zero. The cleanup reads these.
CREATE TABLE messagebox.message_zero_sum (message_id uuid PRIMARY KEY);
CREATE TABLE messagebox.part_zero_sum (part_id uuid PRIMARY KEY);

-- Every row of a ref-count log is deleted by the next fold, seconds after it was written. A number of dead rows
-- triggers the vacuum, not a share of the table: the size at the last vacuum does not predict the size now. There is no
-- cost delay, because a fold waits for a vacuum of its log. Vacuum also frees empty pages, which every fold and cleanup
-- would read otherwise.
ALTER TABLE messagebox.message_ref_count_log_1 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.message_ref_count_log_2 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_1 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_2 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Folds change a total, and it is deleted with its message. An id stays in zero_sum until the next cleanup. As in a
-- queue, the rows of these tables live for seconds, or the tables are as large as the spool. So a small share of dead
-- rows triggers a vacuum.
ALTER TABLE messagebox.message_ref_count_log_totals SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_totals SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.message_zero_sum SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_zero_sum SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The number of references to each message and each part, summed over rows, logs and totals. An id without a row was
-- never counted. Zero means that the cleanup has not deleted the message or part yet. For administrators, and for
-- postroom check.
CREATE VIEW messagebox.message_ref_counts AS
    SELECT message_id, sum(delta)::bigint AS total
      FROM (SELECT message_id, total AS delta FROM messagebox.message_ref_count_log_totals
            UNION ALL SELECT message_id, delta FROM messagebox.message_ref_count_log_1
            UNION ALL SELECT message_id, delta FROM messagebox.message_ref_count_log_2
            UNION ALL SELECT message_id, 1 FROM messagebox.spool WHERE only_reference
            UNION ALL SELECT message_id, 0 FROM messagebox.message_zero_sum) c
     GROUP BY message_id;

CREATE VIEW messagebox.part_ref_counts AS
    SELECT part_id, sum(delta)::bigint AS total
      FROM (SELECT part_id, total AS delta FROM messagebox.part_ref_count_log_totals
            UNION ALL SELECT part_id, delta FROM messagebox.part_ref_count_log_1
            UNION ALL SELECT part_id, delta FROM messagebox.part_ref_count_log_2
            UNION ALL SELECT part_id, 1 FROM messagebox.parts WHERE only_reference
            UNION ALL SELECT part_id, 0 FROM messagebox.part_zero_sum) c
     GROUP BY part_id;
