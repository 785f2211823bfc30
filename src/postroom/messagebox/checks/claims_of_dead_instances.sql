-- Messages and orchestration instances that are claimed by a host instance that has been dead for longer than a job
-- needs to detect it. Claims of sink batches are excluded: the next process that serves the sink takes them over. So
-- are those of programs, whose leases expire.
SELECT 'instance ' || w.instance_id || ', claimed by host instance ' || w.claimed_by
  FROM work_queue w
  LEFT JOIN messagebox.host_instances h ON h.id = w.claimed_by
 WHERE w.claim_id IS NOT NULL AND (h.id IS NULL OR h.dead_since < now() - interval '1 minute')
   AND NOT EXISTS (SELECT 1 FROM sink_batches b WHERE b.batch_id = w.claim_id)
   AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.claim_id = w.claim_id)
UNION ALL
SELECT 'instance ' || o.instance_id || ', claimed by host instance ' || o.claimed_by
  FROM orchestration_instances o
  LEFT JOIN messagebox.host_instances h ON h.id = o.claimed_by
 WHERE o.claim_id IS NOT NULL AND (h.id IS NULL OR h.dead_since < now() - interval '1 minute')
