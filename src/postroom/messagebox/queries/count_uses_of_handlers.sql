-- The number of receive locations, or of send ports and backup transports, that each host has of each adapter.
-- Indexes: none needed; there are few.
SELECT host_id, adapter_kind, 'receive', count(*) FROM management.receive_locations GROUP BY host_id, adapter_kind
UNION ALL
SELECT p.host_id, t.adapter_kind, 'send', count(*)
  FROM management.send_ports p, unnest(ARRAY[p.adapter_kind, p.backup_kind]) t (adapter_kind)
 WHERE t.adapter_kind IS NOT NULL
 GROUP BY p.host_id, t.adapter_kind
