"""Chaos for delivery and two-way ports: hosts, connections and PostgreSQL fail while programs publish and callers wait.

`traffic` publishes, calls and consumes. `receiver` is an unreliable receiver. `processes` kills and freezes. `findings`
compares what arrived with what was published. `run` starts all of it.
"""
