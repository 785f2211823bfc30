-- The roles of this MessageBox that can be granted, and the logins that have them. The owner, who created the roles, is
-- a member of all of them and is left out.
SELECT r.role, r.role_name,
       coalesce(array_agg(l.rolname::text ORDER BY l.rolname) FILTER (WHERE l.oid IS NOT NULL), '{}')
  FROM (SELECT 1 AS number, 'administrators' AS role, 'postroom_' || id || '_administrators' AS role_name
          FROM message_box
        UNION ALL SELECT 2, 'operators', 'postroom_' || id || '_operators' FROM message_box
        UNION ALL SELECT 3, 'host:' || name, role_name FROM hosts) r
  LEFT JOIN pg_roles g ON g.rolname = r.role_name
  LEFT JOIN pg_auth_members m ON m.roleid = g.oid
  LEFT JOIN pg_roles l ON l.oid = m.member
       AND l.oid <> (SELECT relowner FROM pg_class WHERE oid = 'messagebox.spool'::regclass)
 GROUP BY r.number, r.role, r.role_name
 ORDER BY r.number, r.role
