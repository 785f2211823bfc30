"""Everything that Postroom raises, as one tree.

    PostroomError
    ├── DefinitionError        a user's definition or argument is wrong; nothing was changed
    │   ├── BadValue           a value is outside its type's domain
    │   ├── BadFilter          a filter cannot be read, or is not allowed
    │   ├── DefinitionRefused  an application has problems; carries every one, with file and line
    │   └── NotFound           a name or id that is not there
    ├── StateError             the thing is there, but its state does not allow the operation
    │   └── NotAllowed         the login may not do this
    ├── MessageFailure         one message cannot go on; it is suspended with this reason
    │   ├── PipelineFailure    it cannot be decoded, disassembled or promoted
    │   │   └── MapFailure         the map of its port failed
    │   ├── AuthenticationFailure  nobody known stands for it, where a receive port requires that
    │   ├── RoutingFailure     nobody subscribes to it
    │   ├── DeliveryFailure    a send port could not transmit it this time
    │   └── DeliveryRefused    a send port can never transmit it
    │       └── AddressRefused     a dynamic send port cannot, or may not, send to where it wants to go
    ├── PublishFailed          a publish was refused as a whole; carries a result per item
    └── Unavailable            the MessageBox (or Java, or Spark) cannot be reached now; trying again may help

An error has a stable code (docs/reference/errors.md), says what happened with which value, and what to do. Whether a
retry can help is a property of the type, and the type decides retries.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


class PostroomError(Exception):
    """Something went wrong in Postroom."""

    code: ClassVar[str] = "POSTROOM"
    transient: ClassVar[bool] = False

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.hint) if line)


class DefinitionError(PostroomError):
    """A definition is wrong; nothing was changed."""

    code = "DEFINITION"


class BadValue(DefinitionError):
    """A value is outside the domain of its type."""

    code = "BAD_VALUE"


class BadFilter(DefinitionError):
    """A filter cannot be read, or compares what cannot be compared."""

    code = "BAD_FILTER"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a definition, and where it was written, if that is known."""

    text: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.file:
            return self.text
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class DefinitionRefused(DefinitionError):
    """An application's definition has problems; nothing of it was applied."""

    code = "DEFINITION_REFUSED"

    def __init__(self, what: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = "one problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(
            f"{what} was refused: {count}.",
            why="\n".join(str(problem) for problem in self.problems),
            hint="Nothing was changed. Mend what is listed and try again.",
        )


class NotFound(DefinitionError):
    """There is nothing of that name or id."""

    code = "NOT_FOUND"


def nearest(name: str, names: Iterable[str], there_are: str, *, none: str = "none") -> str:
    """A hint for a name that is not there: those that look like it, or else those there are, if these are few.

    >>> nearest("Europ", ["Europe", "Audit"], "The send ports are")
    'Did you mean Europe?'
    """
    import difflib  # only for who has made a slip

    known = sorted(set(names))
    by_lower = {each.lower(): each for each in known}
    near = [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, cutoff=_LIKE)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(known) - _FEW:,} more" if len(known) > _FEW else ""
    return f"{there_are}: {', '.join(known[:_FEW]) or none}{more}."


#: How much a name has to look like another one, and how many names a hint may have.
_LIKE = 0.7
_FEW = 20


class StateError(PostroomError):
    """The present state does not allow this operation."""

    code = "STATE"


class NotAllowed(StateError):
    """The login may not do this."""

    code = "NOT_ALLOWED"


class MessageFailure(PostroomError):
    """One message cannot go on; it is kept, suspended with this reason."""

    code = "MESSAGE"


class PipelineFailure(MessageFailure):
    """A message cannot be decoded, disassembled or promoted."""

    code = "PIPELINE"


class MapFailure(PipelineFailure):
    """The map of a port failed."""

    code = "MAP"


class AuthenticationFailure(MessageFailure):
    """Nobody known stands for a message, and its receive port requires that."""

    code = "AUTHENTICATION"


class RoutingFailure(MessageFailure):
    """The published message could not be routed because no subscribers were found."""

    code = "ROUTING"


class DeliveryFailure(MessageFailure):
    """A send port could not transmit the message this time."""

    code = "DELIVERY"
    transient = True


class DeliveryRefused(MessageFailure):
    """A send port can never transmit this message; trying again cannot help."""

    code = "DELIVERY_REFUSED"


class AddressRefused(DeliveryRefused):
    """A dynamic send port cannot, or may not, send to where the message wants to go."""

    code = "ADDRESS"


@dataclass(frozen=True)
class PublishResult:
    """What a refused publish says of one of its messages; no failure means that it alone would have been accepted."""

    message_id: uuid.UUID
    failure: PostroomError | None


class PublishFailed(PostroomError):
    """A publish was refused as a whole; none of its messages was kept."""

    code = "PUBLISH"

    def __init__(self, results: Sequence[PublishResult]) -> None:
        failures = [(result.message_id, result.failure) for result in results if result.failure is not None]
        nobody = any(isinstance(failure, RoutingFailure) for _, failure in failures)
        super().__init__(
            f"Nothing was published: {len(failures)} of {len(results)} messages cannot be.",
            why="; ".join(f"{message_id}: {failure.what}" for message_id, failure in failures[:3]),
            hint="'postroom explain' shows for a message which subscriptions it misses, and why."
            if nobody
            else next((failure.hint for _, failure in failures if failure.hint), ""),
        )
        self.results = tuple(results)


class Unavailable(PostroomError):
    """Something that is needed cannot be reached right now."""

    code = "UNAVAILABLE"
    transient = True
