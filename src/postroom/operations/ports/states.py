"""The states that send ports and send port groups go through, and what an operation on one did (SPT-01, SPT-02).

bound ──enlist──► stopped ──start──► started          start on a bound one enlists it first
  ▲                  │  ▲               │             unenlist on a started one stops it first
  └────unenlist──────┘  └─────stop──────┘
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import StateError
from postroom.messagebox.configuration import PortState

_FROM = {
    PortState.BOUND: ("enlist", "start"),
    PortState.STOPPED: ("start", "unenlist"),
    PortState.STARTED: ("stop", "unenlist"),
}


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """What an operation did."""

    name: str
    before: PortState
    after: PortState
    resumed: int = 0


def check_transition(operation: str, what: str, state: PortState) -> None:
    """StateError if something in this state cannot do that; ``what`` is how it is called: ``Port 'Europe'``."""
    if operation not in _FROM[state]:
        hint = ", ".join(f"'{other}'" for other in _FROM[state])
        raise StateError(f"{what} is {state.name.lower()}; it cannot {operation}.", hint=f"What it can do now: {hint}.")
