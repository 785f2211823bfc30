-- The roles of the MessageBox, whether they can log in, and their members.
SELECT r.rolname::text, r.rolcanlogin,
       ARRAY(SELECT m.rolname::text FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member
              WHERE a.roleid = r.oid ORDER BY 1)
  FROM pg_roles r
 WHERE starts_with(r.rolname::text, 'postroom_' || (SELECT id FROM messagebox.message_box) || '_')
 ORDER BY 1
