-- What an orchestration instance waits for, and whether the login may read its journal.
-- Indexes: the primary keys of orchestration_instances and orchestration_messages.
SELECT i.journals, i.wake_at,
       (SELECT count(*) FROM orchestration_messages m WHERE m.instance_id = i.instance_id AND m.consumed_in IS NULL)
           AS unreceived,
       i.service_id, has_table_privilege('messagebox.orchestration_journal', 'SELECT') AS can_read_journal
  FROM orchestration_instances i
 WHERE i.instance_id = %s
