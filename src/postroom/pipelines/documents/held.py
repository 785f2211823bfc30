"""Batches that wait until it is known that all of an interchange passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from postroom.pipelines.documents.disassembled_batch import Disassembled

#: How many are held; of more, all are made twice.
_HELD = 4


def until_all_passed(
    batches: Callable[[], Iterator[Disassembled]], *, at_once: Callable[[Disassembled], bool] = lambda _: False
) -> Iterator[Disassembled]:
    """The batches, none of them before all could be made; as they come, if ``at_once`` says so of the first."""
    held: list[Disassembled] | None = []
    found = batches()
    for batch in found:
        if held is not None:
            if not held and at_once(batch):
                yield batch
                yield from found
                return
            held.append(batch)
            held = held if len(held) <= _HELD else None
    yield from batches() if held is None else held
