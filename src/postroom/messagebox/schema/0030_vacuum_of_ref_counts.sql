-- Every row of a ref-count log is deleted by the next fold, seconds after it was written. Vacuum the logs by count, never by
-- share: their size at the last vacuum says nothing. No cost delay, because a fold waits for a vacuum of its log. Vacuum also
-- gives the empty pages back, which every fold and every cleanup would read otherwise.
ALTER TABLE messagebox.message_ref_count_log_1 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.message_ref_count_log_2 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_1 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_2 SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- A total is changed by folds and deleted with its message, and an id stays in zero_sum until the next cleanup. Like a
-- queue, these tables turn over within seconds or are as large as the spool: vacuum at a small share, and soon.
ALTER TABLE messagebox.message_ref_count_log_totals SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_ref_count_log_totals SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.message_zero_sum SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE messagebox.part_zero_sum SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
