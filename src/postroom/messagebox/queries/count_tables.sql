-- The number of tables that are not PostgreSQL's own, and how many of them belong to a MessageBox.
SELECT count(*), count(*) FILTER (WHERE n.nspname = 'messagebox')
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p')
