"""The adapter of dynamic send ports: each message has its own address and adapter."""
