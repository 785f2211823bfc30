"""Authentication that a receive port requires of what comes in: who is nobody is dropped, or kept apart (SEC-11).

It is asked after the pipeline, which may have resolved the party, and of what the MessageBox will believe: a host that
is not trusted has nobody to show for its messages.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from postroom.agent.originator import ANONYMOUS, GUEST, Login
from postroom.agent.receiving.interchange import Chunk
from postroom.errors import AuthenticationFailure
from postroom.messagebox.configuration import ReceiveLocation
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.system_properties import BTS

_ANONYMOUS_NAMES = {"", GUEST.lower(), ANONYMOUS}


def authenticate(location: ReceiveLocation, chunk: Chunk, login: Login) -> Chunk:
    """The chunk without the documents that nobody stands for: those are dropped and counted, or are failures now.

    A standard interchange that is to be kept fails as a whole, and so does one of which nothing is left."""
    if location.authentication == "none" or chunk.documents is None:
        return chunk
    failed = ~find_authenticated(chunk, login)
    count = int(np.count_nonzero(failed))
    if not count:
        return chunk
    good = chunk.documents.filter(pa.array(~failed))
    if location.authentication == "drop":
        return replace(chunk, documents=good, dropped=count)
    failure = authentication_failure(location)
    whole = chunk.number == 0 and chunk.is_last and not chunk.failures and not good.num_rows
    if not chunk.recoverable or whole:
        return replace(chunk, documents=None, failures=(), rejection=failure)
    refused = MessageBatch(chunk.documents.filter(pa.array(failed)), _get_decoded(location, chunk))
    bad = tuple(refused.bad_document(row, failure) for row in range(count))
    return replace(chunk, documents=good, failures=(*chunk.failures, *bad))


def find_authenticated(chunk: Chunk, login: Login) -> npt.NDArray[np.bool_]:
    """Of each document, whether it names an account and a party that is not the guest."""
    if not login.trusted:
        return np.zeros(chunk.rows, dtype=bool)
    return _has_value(chunk, BTS.OriginatorSID.key, {""}) & _has_value(chunk, BTS.OriginatorPID.key, _ANONYMOUS_NAMES)


def _has_value(chunk: Chunk, key: str, nobody: set[str]) -> npt.NDArray[np.bool_]:
    assert chunk.documents is not None
    context = chunk.context
    shared = context.promoted.get(key) or context.written.get(key) or ""
    own = chunk.documents[key].to_pylist() if key in chunk.documents.column_names else [None] * chunk.rows
    return np.fromiter(((value or str(shared)).lower() not in nobody for value in own), dtype=bool, count=chunk.rows)


def _get_decoded(location: ReceiveLocation, chunk: Chunk) -> DecodedInterchange:
    if chunk.decoded is not None:
        return chunk.decoded
    content_type = location.pipeline.content_type
    return DecodedInterchange(body=chunk.source, context=chunk.context, content_type=content_type)


def authentication_failure(location: ReceiveLocation) -> AuthenticationFailure:
    """Why a message does not come in at this location."""
    return AuthenticationFailure(
        f"Nobody is known to stand for this message, and the receive port {location.port_name} requires it.",
        why="BTS.OriginatorSID is not there, or BTS.OriginatorPID is the guest.",
        hint="Have the adapter or the pipeline of a trusted host name both, and resume the instance.",
    )
