"""How messages are stored: rows of the spool and the queues, contexts, bodies and property values."""
