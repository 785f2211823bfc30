"""The handlers of a host, as a user declares them: which adapters the host runs, and in which direction (HST-05)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from postroom.adapters import ReceiveDefinition, SendDefinition
from postroom.adapters.kinds import get_receive_type, list_adapter_types
from postroom.stored_definitions import DeclaredValue

Direction = Literal["receive", "send"]


class Handler(DeclaredValue):
    """An adapter that a host runs in one direction: ``Handler("http", "send", high_watermark=20, low_watermark=10)``.

    ``adapter`` is the kind of the adapter, as ``postroom handler list`` shows it. The watermarks are of a send handler:
    a host instance claims no more messages of slow ports of the adapter while it has ``high_watermark`` of them in
    memory, until it has fewer than ``low_watermark`` (DEQ-17).
    """

    adapter: str = Field(kw_only=False)
    direction: Direction = Field(kw_only=False)
    high_watermark: int = 200
    low_watermark: int = 100

    @property
    def key(self) -> tuple[str, Direction]:
        """A host has one handler with this key."""
        return self.adapter, self.direction

    @property
    def can_be_isolated(self) -> bool:
        """True if an isolated host may have the handler (HST-02)."""
        return self.direction == "receive" and get_receive_type(self.adapter).can_be_isolated

    def problems(self) -> list[str]:
        """Describe each value that is not possible."""
        found = []
        known = _list_kinds(self.direction)
        if self.adapter not in known:
            choices = ", ".join(known)
            found.append(f"no adapter {self.adapter!r} can {self.direction}; the adapters that can are {choices}.")
        if not 1 <= self.low_watermark <= self.high_watermark:
            found.append(
                f"its low watermark is {self.low_watermark} and its high watermark {self.high_watermark}, but the low "
                "one must be at least 1 and at most the high one."
            )
        return found

    def __str__(self) -> str:
        return f"{self.adapter} {self.direction}"


def list_default_handlers(*, isolated: bool) -> tuple[Handler, ...]:
    """Return the handlers of a host for which none are declared: all that its type allows."""
    every = [
        *(Handler(adapter, "receive") for adapter in _list_kinds("receive")),
        *(Handler(adapter, "send") for adapter in _list_kinds("send")),
    ]
    return tuple(handler for handler in every if not isolated or handler.can_be_isolated)


def _list_kinds(direction: Direction) -> list[str]:
    """Return the kinds of the adapters that can be used in this direction, sorted."""
    wanted = ReceiveDefinition if direction == "receive" else SendDefinition
    return [kind for kind, found in list_adapter_types().items() if issubclass(found, wanted)]


def describe_handlers(handlers: Sequence[Handler] | None) -> str:
    """Return the declared handlers in one line, for plans."""
    if handlers is None:
        return "default"
    return ", ".join(
        str(handler)
        if handler == Handler(*handler.key)
        else f"{handler} (watermarks {handler.high_watermark} and {handler.low_watermark})"
        for handler in handlers
    )
