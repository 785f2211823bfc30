"""Chaos for delivery and two-way ports: hosts, connections and PostgreSQL fail while programs publish and callers wait.

`traffic` publishes and consumes, and `callers` sends requests. `receiver` is an unreliable receiver. `processes` kills
and freezes. `findings` compares what arrived with what was published, `order` checks ordered ports, and `answers` the
answers of callers. `run` starts all of it.
"""
