"""Drop or suspend messages without an authenticated originator, as a receive port requires (SEC-11).

The check runs after the pipeline, which may have resolved the party. It checks the originator that the MessageBox will
store: no message of an untrusted host is authenticated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from postroom.agent.originator import ANONYMOUS, GUEST, PublisherLogin
from postroom.agent.streaming.interchange import Chunk
from postroom.errors import AuthenticationFailure
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import BTS

_ANONYMOUS_NAMES = {"", GUEST.lower(), ANONYMOUS}


def authenticate(location: ReceiveLocation, chunk: Chunk, login: PublisherLogin) -> Chunk:
    """Return the chunk without the documents that have no authenticated originator. They are dropped, or failures.

    If they are failures, a standard interchange is rejected as a whole, and so is an interchange without other
    documents."""
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
    rejected = MessageBatch(chunk.documents.filter(pa.array(failed)), _get_decoded(location, chunk))
    bad = tuple(rejected.bad_document(row, failure) for row in range(count))
    return replace(chunk, documents=good, failures=(*chunk.failures, *bad))


def find_authenticated(chunk: Chunk, login: PublisherLogin) -> npt.NDArray[np.bool_]:
    """Return for each document whether it names an account, and a party other than the guest."""
    if not login.trusted:
        return np.zeros(chunk.rows, dtype=bool)
    return _has_value(chunk, BTS.OriginatorSID.key, {""}) & _has_value(chunk, BTS.OriginatorPID.key, _ANONYMOUS_NAMES)


def _has_value(chunk: Chunk, key: str, anonymous: set[str]) -> npt.NDArray[np.bool_]:
    assert chunk.documents is not None
    context = chunk.context
    shared = context.promoted.get(key) or context.written.get(key) or ""
    own = chunk.documents[key].to_pylist() if key in chunk.documents.column_names else [None] * chunk.rows
    return np.fromiter(((value or str(shared)).lower() not in anonymous for value in own), dtype=bool, count=chunk.rows)


def _get_decoded(location: ReceiveLocation, chunk: Chunk) -> DecodedInterchange:
    if chunk.decoded is not None:
        return chunk.decoded
    content_type = location.pipeline.content_type
    return DecodedInterchange(body=chunk.source, context=chunk.context, content_type=content_type)


def authentication_failure(location: ReceiveLocation) -> AuthenticationFailure:
    """Return the failure of a message without an authenticated originator."""
    return AuthenticationFailure(
        f"The message has no authenticated originator, and the receive port {location.port_name} requires one.",
        why="BTS.OriginatorSID is missing, or BTS.OriginatorPID is the guest.",
        hint="Let the adapter or the pipeline of a trusted host set both properties, and resume the instance.",
    )
