-- Delete the bindings of an orchestration, except those of some logical ports.
-- Index: the primary key of bindings.
DELETE FROM bindings WHERE orchestration = %s AND logical_port <> ALL (%s)
