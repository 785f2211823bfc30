-- How many references there are to each message and each part, wherever they are counted at the moment. What is not here
-- was never counted; zero means that only the cleanup is missing. For people, and for postroom check.

CREATE VIEW messagebox.message_ref_counts AS
    SELECT message_id, sum(delta)::bigint AS total
      FROM (SELECT message_id, total AS delta FROM messagebox.message_ref_count_log_totals
            UNION ALL SELECT message_id, delta FROM messagebox.message_ref_count_log_1
            UNION ALL SELECT message_id, delta FROM messagebox.message_ref_count_log_2
            UNION ALL SELECT message_id, 0 FROM messagebox.message_zero_sum) c
     GROUP BY message_id;

CREATE VIEW messagebox.part_ref_counts AS
    SELECT part_id, sum(delta)::bigint AS total
      FROM (SELECT part_id, total AS delta FROM messagebox.part_ref_count_log_totals
            UNION ALL SELECT part_id, delta FROM messagebox.part_ref_count_log_1
            UNION ALL SELECT part_id, delta FROM messagebox.part_ref_count_log_2
            UNION ALL SELECT part_id, 0 FROM messagebox.part_zero_sum) c
     GROUP BY part_id;
