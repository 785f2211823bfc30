"""Request-response messaging in the direct lane: requests that wait for their response, and responses."""
