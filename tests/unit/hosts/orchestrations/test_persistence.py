"""The outcome of a shared transaction is decided for each instance, also if its error names none of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from postroom.errors import PublishFailed
from postroom.hosts.orchestrations.persistence import persist_together
from tests.support.claimed_instances import claim


class RefusingAgent:
    def __init__(self) -> None:
        self.calls = 0

    def transaction(self, work: object, **_: object) -> None:
        self.calls += 1
        raise PublishFailed([])


def test_an_error_that_names_no_instance_is_the_outcome_of_each() -> None:
    agent = RefusingAgent()
    thread = cast(Any, SimpleNamespace(agent=agent, get_ports=lambda: None))
    point = SimpleNamespace(sends=[], commands=[])
    instances = [cast(Any, SimpleNamespace(claimed=claim(), point=point, orchestration=None)) for _ in range(2)]
    outcomes = persist_together(thread, instances)
    assert {one.claimed.instance_id for one in instances} == outcomes.keys()
    assert all(isinstance(outcome, PublishFailed) for outcome in outcomes.values())
    assert agent.calls == 3  # together, and then each alone
