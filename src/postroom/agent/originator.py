"""The originator of a message: the account that published it and the party that it names (SEC-07 … 10).

The MessageBox decides by the rights of the login: only a trusted host can store an originator other than itself
(ADR 0034). This module applies the same rule to routing and to stored contexts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from postroom.message import Context
from postroom.messagebox import routing
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.copy_rows import StoredOriginator
from postroom.system_properties import BTS

#: The party of a message without an authenticated originator.
GUEST = "Guest"
#: BizTalk's other name for the guest: the security identifier of the anonymous login.
ANONYMOUS = "s-1-5-7"

_SID, _PID = BTS.OriginatorSID.key, BTS.OriginatorPID.key


@dataclass(frozen=True, kw_only=True)
class PublisherLogin:
    """The account that a publisher is logged in with, and whether it may publish on behalf of others."""

    account: str = ""
    trusted: bool = False


def read_login(connection: Connection) -> PublisherLogin:
    account, trusted = routing.read_login(connection)
    return PublisherLogin(account=account, trusted=trusted)


def has_originator(context: Context) -> bool:
    """Return True if the context names an originator. Most contexts do not."""
    promoted, written = context.promoted, context.written
    return _SID in promoted or _PID in promoted or _SID in written or _PID in written


def resolve_originator(context: Context, login: PublisherLogin) -> Context:
    """Return the context with the originator that the MessageBox will store. A context without originator is
    unchanged."""
    if not has_originator(context):
        return context
    for prop, default in ((BTS.OriginatorSID, login.account), (BTS.OriginatorPID, GUEST)):
        if prop in context and (not login.trusted or not context[prop]):
            change = context.promote if context.is_promoted(prop) else context.write
            context = change(prop, default)
    return context


def resolve_originator_columns(columns: Mapping[str, pa.Array], login: PublisherLogin) -> dict[str, pa.Array]:
    """Return the columns of a batch with the originators that the MessageBox will store. Missing values stay
    missing."""
    defaults = {_SID: login.account, _PID: GUEST}
    return {
        key: _resolve_column(column, defaults[key], login) if key in defaults else column
        for key, column in columns.items()
    }


def _resolve_column(column: pa.Array, default: str, login: PublisherLogin) -> pa.Array:
    is_replaced = pc.equal(column, "") if login.trusted else pc.is_valid(column)
    return pc.if_else(pc.fill_null(is_replaced, False), default, column)


def to_stored_originator(context: Context, login: PublisherLogin) -> StoredOriginator | None:
    """Return the originator that a trusted login stores next to the context, or None."""
    if not login.trusted or not has_originator(context):
        return None
    sid, pid = context.get(BTS.OriginatorSID), context.get(BTS.OriginatorPID)
    return (str(sid) if sid else None), (str(pid) if pid else None)


def to_stored_originators(
    shared: Sequence[Context], columns: Mapping[str, pa.Array], login: PublisherLogin
) -> list[StoredOriginator] | None:
    """Return the stored originator of each row of a batch, from its shared context and its promoted values."""
    if not login.trusted:
        return None
    own = {key: columns[key].to_pylist() for key in (_SID, _PID) if key in columns}
    if not own and not any(map(has_originator, _list_distinct(shared))):
        return None
    known = {id(context): to_stored_originator(context, login) or (None, None) for context in _list_distinct(shared)}
    pairs = [known[id(context)] for context in shared]
    sids = own.get(_SID) or [None] * len(shared)
    pids = own.get(_PID) or [None] * len(shared)
    return [(sid or pair[0], pid or pair[1]) for pair, sid, pid in zip(pairs, sids, pids, strict=True)]


def _list_distinct(shared: Sequence[Context]) -> list[Context]:
    """Return the distinct contexts. Rows of one interchange have the same object."""
    return list({id(context): context for context in shared}.values())
