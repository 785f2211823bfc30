-- The actions of operators, the latest first. Every condition is optional. An action without a dot selects all of its
-- kind.
-- Indexes: the primary key; audit_target if a target is given.
SELECT id AS entry_id, recorded_at, login, os_user, action, target, reason, before, after
  FROM management.audit
 WHERE (%(action)s::text IS NULL OR action = %(action)s OR starts_with(action, %(action)s || '.'))
   AND (%(target)s::text IS NULL OR target = %(target)s)
   AND (%(login)s::text IS NULL OR %(login)s IN (login, os_user))
   AND (%(since)s::timestamptz IS NULL OR recorded_at >= %(since)s)
   AND (%(until)s::timestamptz IS NULL OR recorded_at < %(until)s)
 ORDER BY id DESC
 LIMIT %(limit)s
