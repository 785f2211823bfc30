"""Commands for messages and service instances: publish, explain, list, resume, terminate."""
