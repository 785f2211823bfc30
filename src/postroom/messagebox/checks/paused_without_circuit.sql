-- Messages that wait until a circuit breaker is closed, although none is open for their port.
SELECT 'instance ' || s.instance_id || ' of send port ' || s.service_id
  FROM scheduled_queue s
 WHERE s.paused
   AND NOT EXISTS (SELECT 1 FROM messagebox.open_circuits c WHERE c.port_id = s.service_id AND c.host_id = s.host_id)
