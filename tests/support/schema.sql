-- The schema of a MessageBox as text, one line for each thing, in an order that does not depend on how it was made:
-- tables with their columns, constraints, indexes, views, functions by their signature, and who may use what.
-- Bodies of functions are left out: each is a file of its own.
WITH own AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname IN ('messagebox', 'management')
), relation AS (
    SELECT c.*, own.nspname || '.' || c.relname AS name FROM pg_class c JOIN own ON own.oid = c.relnamespace
), line AS (
    SELECT 1 AS chapter, r.name AS thing, '' AS detail,
           concat_ws(' ', CASE r.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view'
                                         WHEN 'S' THEN 'sequence' WHEN 'm' THEN 'materialized view'
                                         WHEN 'c' THEN 'type' END,
                     r.name, CASE r.relpersistence WHEN 'u' THEN 'unlogged' END,
                     CASE WHEN r.relispartition
                          THEN 'partition of ' || (SELECT i.inhparent::regclass::text FROM pg_inherits i
                                                    WHERE i.inhrelid = r.oid) END,
                     pg_get_expr(r.relpartbound, r.oid), pg_get_partkeydef(r.oid),
                     array_to_string(r.reloptions, ', ')) AS text
      FROM relation r WHERE r.relkind IN ('r', 'p', 'v', 'm', 'S', 'c')
    UNION ALL
    SELECT 1, r.name, 'column ' || a.attname,
           concat_ws(' ', '    column', a.attname, format_type(a.atttypid, a.atttypmod),
                     CASE WHEN a.attnotnull THEN 'not null' END,
                     'default ' || pg_get_expr(d.adbin, d.adrelid),
                     CASE a.attidentity WHEN 'a' THEN 'identity' WHEN 'd' THEN 'identity by default' END,
                     CASE a.attgenerated WHEN 's' THEN 'generated' END,
                     CASE WHEN a.attstorage <> t.typstorage THEN 'storage ' || a.attstorage::text END,
                     CASE WHEN a.attcollation <> t.typcollation
                          THEN 'collate ' || a.attcollation::regcollation::text END,
                     array_to_string(a.attoptions, ', '))
      FROM relation r
      JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
     WHERE r.relkind IN ('r', 'p', 'v', 'm', 'c')
    UNION ALL
    SELECT 1, r.name, 'constraint ' || c.conname, '    constraint ' || c.conname || ' ' || pg_get_constraintdef(c.oid)
      FROM relation r JOIN pg_constraint c ON c.conrelid = r.oid WHERE c.contype <> 'n'
    UNION ALL
    SELECT 1, r.name, 'index ' || x.relname, '    ' || pg_get_indexdef(x.oid)
      FROM relation r JOIN pg_index i ON i.indrelid = r.oid JOIN pg_class x ON x.oid = i.indexrelid
     WHERE NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = x.oid)
    UNION ALL
    SELECT 1, r.name, 'trigger ' || t.tgname, '    ' || pg_get_triggerdef(t.oid)
      FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
    UNION ALL
    SELECT 1, r.name, 'view', '    ' || regexp_replace(pg_get_viewdef(r.oid), '\s+', ' ', 'g')
      FROM relation r WHERE r.relkind IN ('v', 'm')
    UNION ALL
    SELECT 1, r.name, 'grant ' || g.grantee::regrole::text, format('    grant %s to %s',
           string_agg(lower(g.privilege_type), ', ' ORDER BY g.privilege_type),
           CASE g.grantee WHEN 0 THEN 'public' ELSE g.grantee::regrole::text END)
      FROM relation r CROSS JOIN aclexplode(r.relacl) g WHERE g.grantee <> r.relowner GROUP BY r.name, g.grantee
    UNION ALL
    SELECT 1, r.name, 'grant ' || a.attname || g.grantee::regrole::text, format('    grant %s (%s) to %s',
           string_agg(lower(g.privilege_type), ', ' ORDER BY g.privilege_type), a.attname, g.grantee::regrole)
      FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid CROSS JOIN aclexplode(a.attacl) g
     WHERE g.grantee <> r.relowner GROUP BY r.name, a.attname, g.grantee
    UNION ALL
    SELECT 2, own.nspname || '.' || t.typname, '',
           concat_ws(' ', CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN 'domain' END,
                     own.nspname || '.' || t.typname,
                     (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum e
                       WHERE e.enumtypid = t.oid),
                     CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) END)
      FROM pg_type t JOIN own ON own.oid = t.typnamespace WHERE t.typtype IN ('e', 'd')
    UNION ALL
    SELECT 3, own.nspname || '.' || p.proname, pg_get_function_identity_arguments(p.oid),
           concat_ws(' ', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END,
                     own.nspname || '.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')',
                     'returns ' || pg_get_function_result(p.oid), l.lanname,
                     CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' WHEN 'v' THEN 'volatile' END,
                     CASE WHEN p.proisstrict THEN 'strict' END, CASE WHEN p.prosecdef THEN 'security definer' END,
                     CASE p.proparallel WHEN 's' THEN 'parallel safe' END,
                     array_to_string(p.proconfig, ', '),
                     'execute: ' || (SELECT string_agg(CASE g.grantee WHEN 0 THEN 'public'
                                                       ELSE g.grantee::regrole::text END, ', '
                                                       ORDER BY g.grantee::regrole::text)
                                       FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g
                                      WHERE g.grantee <> p.proowner))
      FROM pg_proc p JOIN own ON own.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
    UNION ALL
    SELECT 4, own.nspname, g.grantee::regrole::text, format('schema %s: %s to %s', own.nspname,
           string_agg(lower(g.privilege_type), ', ' ORDER BY g.privilege_type), g.grantee::regrole)
      FROM own JOIN pg_namespace n ON n.oid = own.oid CROSS JOIN aclexplode(n.nspacl) g
     WHERE g.grantee <> n.nspowner GROUP BY own.nspname, g.grantee
)
SELECT text FROM line ORDER BY chapter, thing COLLATE "C", detail COLLATE "C"
