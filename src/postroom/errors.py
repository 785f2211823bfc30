"""Everything that Postroom raises, as one tree.

    PostroomError
    ├── DefinitionError        a user's definition or argument is wrong; nothing was changed
    │   ├── BadValue           a value is outside its type's domain
    │   ├── BadFilter          a filter cannot be read, or is not allowed
    │   ├── DefinitionRefused  an application has problems; carries every one, with file and line
    │   └── NotFound           nothing has this name or id
    ├── StateError             the state of an object does not allow the operation
    │   ├── NotAllowed         the login may not do this
    │   ├── KeyReused          an idempotency key was used for other content
    │   └── ClaimLost          another host instance took over the claim
    ├── MessageFailure         a message cannot be processed further; it is suspended with this reason
    │   ├── PipelineFailure    it cannot be decoded, disassembled or promoted
    │   │   └── MapFailure         the map of its port failed
    │   ├── AuthenticationFailure  it has no authenticated originator, and its receive port requires one
    │   ├── RoutingFailure     it has no subscribers
    │   ├── CorrelationFailure it is a response, and no caller waits for it any more
    │   ├── StorageFailure     PostgreSQL does not accept a value of it
    │   │   ├── DuplicateKey       a row with the same key exists
    │   │   └── MissingReference   a row that it refers to does not exist
    │   ├── MessageGone        parts of it are missing in the MessageBox
    │   ├── DeliveryFailure    a send port could not transmit it this time
    │   ├── MessageExpired     it was not sent in time
    │   └── DeliveryRefused    a send port can never transmit it
    │       └── AddressRefused     a dynamic send port cannot, or may not, send to its address
    ├── ChangesNotTaken        changes are deployed, but running processes still use the previous definitions
    ├── PublishFailed          a publish was refused as a whole; carries a result per item
    ├── NoResponse             the request of a program was published, and has no response
    │   └── ResponseTimeout        the response did not come in time
    ├── DatabaseError          PostgreSQL rejected a statement; a retry does not help
    └── Unavailable            something that is needed (Java, Spark, a file) is not available now; a retry may help
        ├── SecretUnavailable      the environment variable or file of a secret is missing here
        ├── Throttled              the MessageBox has too much load for more messages of programs
        └── MessageBoxUnavailable  the MessageBox did not answer, or cannot process the request now
            ├── TransactionConflict    a conflict with another transaction (deadlock, serialization failure)
            ├── LockTimeout            another session held a lock for too long
            ├── StaleRouting           the subscriptions changed between matching and writing
            └── ReadInterrupted        the connection was lost while a message was read

An error describes what happened with which value, why, and what to do. Its type alone declares three things:

- ``code``: its stable code (docs/reference/errors.md).
- ``fault``: what caused it. A fault of the message suspends the message. A fault of the environment suspends nothing:
  the work is retried by its policy. The caller has to correct any other fault.
- ``transient``: whether a retry may help.

Exceptions of other libraries are translated where they enter, such as psycopg's in messagebox/postgres_errors.py.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

_Named = TypeVar("_Named")


class Fault(Enum):
    """What caused an error: the message, the environment, or a definition, an argument or a login of the caller."""

    MESSAGE = "message"
    ENVIRONMENT = "environment"
    CALLER = "caller"


class PostroomError(Exception):
    """Something went wrong in Postroom."""

    code: ClassVar[str] = "POSTROOM"
    fault: ClassVar[Fault] = Fault.CALLER
    transient: ClassVar[bool] = False

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.hint) if line)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.join_sentences(with_hint=False)!r})"

    def join_sentences(self, *, with_hint: bool = True) -> str:
        """Return the texts of the error one after the other, for a listing with one line per problem."""
        return " ".join(text for text in (self.what, self.why, self.hint if with_hint else "") if text)

    @property
    def can_retry(self) -> bool:
        """True if the same work may succeed later, perhaps after the environment was corrected."""
        return self.transient or self.fault is Fault.ENVIRONMENT


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


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems in the order of files and lines. Those without a file are last."""
    return tuple(sorted(problems, key=lambda problem: (not problem.file, problem.file, problem.line)))


class DefinitionRefused(DefinitionError):
    """An application's definition has problems; nothing of it was applied."""

    code = "DEFINITION_REFUSED"

    def __init__(self, what: str, problems: Iterable[Problem]) -> None:
        self.problems = sort_problems(problems)
        has_file = any(problem.file for problem in self.problems)
        super().__init__(
            f"{what} was refused: {format_count(len(self.problems), 'problem')}.",
            why="\n".join(str(problem) for problem in self.problems),
            hint="Nothing was changed." + (" Correct the definition and try again." if has_file else ""),
        )


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun in a sentence: ``one record``, ``no records``, ``1,200 records``."""
    return f"one {noun}" if number == 1 else f"{f'{number:,}' if number else 'no'} {noun}s"


class NotFound(DefinitionError):
    """Nothing has this name or id."""

    code = "NOT_FOUND"


#: What a hint says instead of names if there are none yet.
NONE_APPLIED = "none; run postroom apply first"


def suggest_names(name: str, names: Iterable[str], there_are: str, *, none: str = "none", limit: int = 20) -> str:
    """Return a hint for an unknown name: similar names, or else a list of up to ``limit`` known names."""
    import difflib  # slow to import, and needed for an unknown name only

    known = sorted(set(names))
    by_lower = {each.lower(): each for each in known}
    if near := [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, cutoff=0.7)]:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(known) - limit:,} more" if len(known) > limit else ""
    return f"{there_are}: {', '.join(known[:limit]) or none}{more}."


def find_named(known: Mapping[str, _Named], name: str, kind: str, *, none: str = "none") -> _Named:
    """Return what is known under a name. Raise NotFound, which suggests names, if it is unknown.

    >>> find_named({port.name: port for port in ports}, "Europ", "send port")
    """
    if name in known:
        return known[name]
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    raise NotFound(f"There is no {kind} {name!r}.", hint=suggest_names(name, known, f"The {plural} are", none=none))


class StateError(PostroomError):
    """The present state does not allow this operation."""

    code = "STATE"


class NotAllowed(StateError):
    """The login may not do this."""

    code = "NOT_ALLOWED"
    fault = Fault.ENVIRONMENT


class KeyReused(StateError):
    """An idempotency key was used for other messages."""

    code = "KEY_REUSED"

    def __init__(self) -> None:
        super().__init__(
            "The idempotency key was used for other content.",
            why="A key stands for one content: the same bodies, properties and order. Nothing was published now.",
            hint="Repeat the call with the same content, or use a new key for new content.",
        )


class ClaimLost(StateError):
    """Another host instance took over the claim; the result of this one does not count."""

    code = "CLAIM_LOST"
    fault = Fault.ENVIRONMENT


class ChangesNotTaken(PostroomError):
    """Changes are deployed, but running processes still use the previous definitions."""

    code = "NOT_TAKEN"
    fault = Fault.ENVIRONMENT
    transient = True


class MessageFailure(PostroomError):
    """A message cannot be processed further. It is suspended with this reason."""

    code = "MESSAGE"
    fault = Fault.MESSAGE


class PipelineFailure(MessageFailure):
    """A message cannot be decoded, disassembled or promoted."""

    code = "PIPELINE"


class MapFailure(PipelineFailure):
    """The map of a port failed."""

    code = "MAP"


class AuthenticationFailure(MessageFailure):
    """A message has no authenticated originator, and its receive port requires one."""

    code = "AUTHENTICATION"


class RoutingFailure(MessageFailure):
    """The published message could not be routed because no subscribers were found."""

    code = "ROUTING"


def restore_failure(code: str, what: str) -> MessageFailure:
    """Return the failure of a received message whose code and text were stored."""
    kinds = {kind.code: kind for kind in (MapFailure, AuthenticationFailure, RoutingFailure)}
    return kinds.get(code, PipelineFailure)(what)


class CorrelationFailure(MessageFailure):
    """The response could not be correlated to an existing request."""

    code = "CORRELATION"

    def __init__(self) -> None:
        super().__init__(
            "The response could not be correlated to an existing request.",
            why="The caller has another response, its time was over, or it has disconnected.",
            hint="Save the message if it is needed, and terminate the instance.",
        )


class LoopDetected(MessageFailure):
    """Services activate each other without end: the message was passed on too often."""

    code = "LOOP"


class StorageFailure(MessageFailure):
    """PostgreSQL does not accept a value of the message."""

    code = "STORAGE"


class DuplicateKey(StorageFailure):
    """A row with the same key exists."""


class MissingReference(StorageFailure):
    """A row that the message refers to does not exist."""


class MessageGone(MessageFailure):
    """Parts of the message are missing in the MessageBox; no attempt can deliver it."""

    code = "MESSAGE_GONE"


class DeliveryFailure(MessageFailure):
    """A send port could not transmit the message this time.

    ``properties_to_update`` are values by Property that the adapter wants to find in the context of the next attempt
    (SND-09). They are kept with the queue row. The stored context does not change."""

    code = "DELIVERY"
    fault = Fault.ENVIRONMENT
    transient = True

    def __init__(self, what: str, *, properties_to_update: Mapping[Any, object] | None = None, **texts: str) -> None:
        super().__init__(what, **texts)
        self.properties_to_update = properties_to_update or {}


class MessageExpired(MessageFailure):
    """The message was not sent in time: the limit of its send port, or its own expiration time, has passed."""

    code = "EXPIRED"


class DeliveryRefused(MessageFailure):
    """A send port can never transmit this message; trying again cannot help."""

    code = "DELIVERY_REFUSED"


class AddressRefused(DeliveryRefused):
    """A dynamic send port cannot, or may not, send to the message's address."""

    code = "ADDRESS"


@dataclass(frozen=True)
class PublishResult:
    """The result for one message of a refused publish. Without a failure the message alone would have been accepted. A
    message without a subscriber has a routing failure report, whose id ``postroom explain`` takes."""

    message_id: uuid.UUID
    failure: PostroomError | None
    report_id: uuid.UUID | None = None


class PublishFailed(PostroomError):
    """A publish was refused as a whole. None of its messages was stored."""

    code = "PUBLISH"

    def __init__(self, results: Sequence[PublishResult]) -> None:
        failures = [(result.message_id, result.failure) for result in results if result.failure is not None]
        report_id = next((result.report_id for result in results if result.report_id is not None), None)
        super().__init__(
            f"Nothing was published: {len(failures)} of {len(results)} messages cannot be published.",
            why="; ".join(f"{message_id}: {failure.what}" for message_id, failure in failures[:3]),
            hint=f"'postroom explain {report_id}' shows which subscriptions it misses, and why."
            if report_id is not None
            else next((failure.hint for _, failure in failures if failure.hint), ""),
        )
        self.results = tuple(results)


class NoResponse(PostroomError):
    """The request of a program was published, but could not be answered."""

    code = "NO_RESPONSE"
    fault = Fault.ENVIRONMENT


class ResponseTimeout(NoResponse):
    """The response to a request did not come in time."""

    code = "RESPONSE_TIMEOUT"
    transient = True


class DatabaseError(PostroomError):
    """PostgreSQL rejected a statement: a bug, or a schema that does not fit this version."""

    code = "DATABASE"
    fault = Fault.ENVIRONMENT


class Unavailable(PostroomError):
    """Something that is needed is not available right now."""

    code = "UNAVAILABLE"
    fault = Fault.ENVIRONMENT
    transient = True


class SecretUnavailable(Unavailable):
    """The environment variable or the file of a secret is missing in this process."""

    code = "SECRET"


class Throttled(Unavailable):
    """The MessageBox has too much load for more messages of programs. Nothing was published."""

    code = "THROTTLED"


class MessageBoxUnavailable(Unavailable):
    """The MessageBox did not answer, or cannot process the request now."""


class TransactionConflict(MessageBoxUnavailable):
    """The transaction conflicts with another one and was rolled back."""


class LockTimeout(MessageBoxUnavailable):
    """Another session held a lock for longer than the lock timeout."""


class StaleRouting(MessageBoxUnavailable):
    """The subscriptions changed between matching and writing. The transaction rolls back and is tried again."""


class ReadInterrupted(MessageBoxUnavailable):
    """The connection was lost while a message was read; nothing is wrong with the message."""

    code = "READ_INTERRUPTED"


#: Errors of the machine, whatever file they are about.
MACHINE_ERRNOS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
)


def is_environment_error(error: BaseException) -> bool:
    """Return True if the environment caused the error, not the message. The one place that judges exceptions without a
    ``fault``, such as those of a user's component."""
    if isinstance(error, PostroomError):
        return error.fault is Fault.ENVIRONMENT
    if isinstance(error, OSError):
        return error.errno in MACHINE_ERRNOS
    return isinstance(error, MemoryError)
