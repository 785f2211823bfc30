"""How a file receive location takes files in: it claims them itself, one by one, under fresh interchange ids.

A claim is a row in the MessageBox and a rename into the location's private folder, in this order:

    row (claiming) ─► rename ─► folders synced ─► looked at again ─► row (claimed, numbered) ─► the stream publishes
                                                                                                  │
                                               row deleted ◄─ file removed or archived ◄─ committed ┘

What is renamed can be anything that a sender has put into the place of a settled file: a symbolic link, a pipe, a hard
link to a file of somebody else. So it is looked at again where no sender can replace it. What is not a regular file
with one name is quarantined: its claim has failed, and nobody opens it.

A crash between any two steps leaves something that ``scan`` recognises: a row without a file was never renamed, a file
without a finished row settles where it is and goes on, and a file without any row has its interchange id in its name.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path

from postroom.adapters.file.folder import remove_left_over
from postroom.agent.receipts import read_progress
from postroom.clock import Clock, system_clock
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim, ClaimState, Settled, Unfinished
from postroom.spark.intake.claim_folders import ClaimFolders, open_claim_folders
from postroom.spark.intake.finishing import KEPT_FOLDER, finish
from postroom.spark.intake.location_lock import LocationLock
from postroom.spark.intake.settling import Look, Settling

_log = logging.getLogger(__name__)

#: Claimed and not yet published, at most: what is not claimed stays where its sender put it.
MOST_OUTSTANDING = 5_000

_AT_A_TIME = 500
_RECOVER_EVERY = timedelta(seconds=2)
_LEFT_OVER_AFTER = timedelta(days=1)
#: How long a file with several names is given to lose them: its sender may be about to remove a temporary one.
_SEVERAL_NAMES_SETTLE = timedelta(seconds=10)
_ID_LENGTH = 36
_LONGEST_NAME = 255


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What one scan did. ``active`` is false while another process claims for this location."""

    active: bool
    claimed: int = 0
    settling: int = 0
    more: bool = False
    """There is more than is taken at once: the rest waits until that is published."""
    problems: tuple[str, ...] = ()


class Claimer:
    """Claims the files of one location, as long as it is the only one to do so: it holds a lock on its session.

    Of a location that is not enabled nothing new is claimed; what is claimed already is brought to its end."""

    def __init__(
        self,
        connection: Connection,
        location: ReceiveLocation,
        home: Path,
        clock: Clock = system_clock,
        *,
        most_outstanding: int = MOST_OUTSTANDING,
    ) -> None:
        self._connection = connection
        self._location_id = location.location_id
        definition = location.adapter.watched_folder
        assert definition is not None, "only locations over folders claim files"
        self._definition = definition
        self.folder = self._definition.folder(home)
        self.private_folder = self._definition.private_parent(home) / str(location.location_id)
        self._home = home
        self._archive = self._definition.archive_folder(home)
        self._is_ordered = definition.is_ordered
        self._takes_new = location.enabled
        self._clock = clock
        self._most_outstanding = most_outstanding
        settle = timedelta(seconds=self._definition.settle)
        self._trusts_senders = self._definition.trusted_senders
        several_names = timedelta() if self._trusts_senders else _SEVERAL_NAMES_SETTLE
        self._arriving = Settling(settle, clock, several_names=several_names)
        self._moved = Settling(settle, clock)  # files that changed while they were picked up
        self._lock = LocationLock(connection, location.location_id)
        self._folders: ClaimFolders  # while a scan runs
        self._recovered_at: datetime | None = None
        self._room: int | None = None  # how much could be claimed at the last look, if that was less than there is
        self._problems: dict[str, None] = {}

    def scan(self) -> Scan:
        """Looks at the folder once: claims what has settled, and mends what a crash has left."""
        if not self._lock.is_held():
            return Scan(active=False)
        before, self._problems = self._problems, {}
        with open_claim_folders(self._definition, self._home, self._location_id) as self._folders:
            self._recover_now_and_then()
            claimed = self._claim_settled() + self._complete_moved()
        for problem in self._problems.keys() - before.keys():
            _log.warning("%s", problem)
        return Scan(
            active=True,
            claimed=claimed,
            settling=len(self._arriving) + len(self._moved),
            more=self._room is not None,
            problems=tuple(self._problems),
        )

    def next_look(self, longest: timedelta) -> timedelta:
        """How long to wait before the next scan has something to find, at most ``longest``."""
        return min(self._arriving.next_in(longest), self._moved.next_in(longest))

    def release(self) -> None:
        """Lets another process claim."""
        self._lock.release()

    # -- claiming ----------------------------------------------------------------------------------------------

    def _claim_settled(self) -> int:
        if not self._takes_new or not self._has_room():
            return 0
        there = dict(self._look_around())
        self._arriving.keep_only(there.keys())
        settled = {path for path, look in there.items() if self._arriving.has_settled(path, look)}
        settled = {path for path in settled if self._is_readable(path)}
        if not settled or (self._is_ordered and self._some_settle_again()):
            return 0
        ready = self._in_turn([(path, path.name, look) for path, look in there.items()], settled)
        room = max(0, self._most_outstanding - claims.outstanding(self._connection, self._location_id))
        self._room = 0 if len(ready) > room else None
        ready = ready[:room]
        claimed = 0
        for first in range(0, len(ready), _AT_A_TIME):
            claimed += self._claim({path: there[path] for path in ready[first : first + _AT_A_TIME]})
            if self._is_ordered and len(self._moved):
                break  # one of them has changed, and those after it wait for it
        return claimed

    def _has_room(self) -> bool:
        """Asked first while there is more than may be claimed: a backlog of many files is not listed in vain. As long
        as more is published, it is not listed for a few files either."""
        if self._room is None:
            return True
        before = self._room
        self._room = max(0, self._most_outstanding - claims.outstanding(self._connection, self._location_id))
        worth_it = min(_AT_A_TIME, self._most_outstanding)
        return self._room >= worth_it or 0 < self._room == before

    def _some_settle_again(self) -> bool:
        """Whether files that were taken have no number yet, or not any more; nothing may overtake them."""
        unfinished = claims.unfinished(self._connection, self._location_id)
        return any(one.state is ClaimState.CLAIMING for one in unfinished)

    def _in_turn(
        self,
        there: Sequence[tuple[Path, str, Look]],
        settled: Collection[Path],
        places: Mapping[uuid.UUID, int] | None = None,
    ) -> list[Path]:
        """Those of the files that have settled and may be taken now, in the order in which to take them: by time, or as
        the location is ordered, and then only up to the first that has not settled. Claimed files that have ``places``
        go before the others, by these."""
        by_name = self._definition.order == "name"
        keys: dict[Path, tuple[object, ...]] = {}
        for path, name, look in there:
            place = places.get(_interchange_id(path), math.inf) if places else 0
            keys[path] = (place, name, look.modified_ns) if by_name else (place, look.modified_ns, name)
        if self._is_ordered:
            return list(takewhile(settled.__contains__, sorted(keys, key=keys.__getitem__)))
        return sorted(settled, key=keys.__getitem__)

    def _look_around(self) -> Iterator[tuple[Path, Look]]:
        """The files that this location takes, settled or not. Read-only ones are not taken (RCV-23)."""
        with os.scandir(self._folders.watched) as entries:
            for entry in entries:
                if self._definition.takes(entry.name):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o222:
                            yield self.folder / entry.name, Look.of(status)

    def _is_readable(self, path: Path) -> bool:
        if os.access(path.name, os.R_OK, dir_fd=self._folders.watched) or not os.path.lexists(path):
            return True
        self._report(f"{path} cannot be read by this account, so it is not taken.")
        return False

    def _claim(self, files: dict[Path, Look]) -> int:
        targets = {}
        for path in files:
            interchange_id = uuid.uuid4()
            targets[path] = (interchange_id, self.private_folder / _private_name(interchange_id, path.name))
        rows = [(interchange_id, _text(path.name), target) for path, (interchange_id, target) in targets.items()]
        claims.begin(self._connection, self._location_id, rows)
        not_moved = []
        for path, (interchange_id, target) in targets.items():
            self._arriving.drop(path)
            try:
                os.rename(path.name, target.name, src_dir_fd=self._folders.watched, dst_dir_fd=self._folders.private)
            except OSError as error:
                not_moved.append(interchange_id)
                if not isinstance(error, FileNotFoundError):
                    self._report(f"{path} cannot be claimed: {error.strerror or error}.")
        # A rename that a crash of the machine undid would let a published file come in again.
        self._folders.sync()
        if not_moved:
            claims.forget(self._connection, not_moved)
        return self._complete([(targets[path], look) for path, look in files.items()])

    def _complete(self, moved: Sequence[tuple[tuple[uuid.UUID, Path], Look]]) -> int:
        """Looks again, now that no sender knows where the file is: only what has not changed goes on."""
        settled = []
        some_changed = False
        for (interchange_id, target), look in moved:
            with suppress(FileNotFoundError):
                now = self._look_at(target)
                if problem := self._reason_for_quarantine(interchange_id, now):
                    self._quarantine(interchange_id, target, problem)
                elif now == look and not (self._is_ordered and some_changed):
                    settled.append(
                        Settled(
                            interchange_id=interchange_id,
                            size=now.size,
                            modified_ns=now.modified_ns,
                            inode=None if self._trusts_senders else now.inode,
                        )
                    )
                else:
                    some_changed = True
                    self._moved.watch(target, now)
        if not self._is_ordered:
            claims.complete(self._connection, settled)
            return len(settled)
        waiting = claims.complete_in_order(self._connection, self._location_id, settled)
        for (interchange_id, target), look in moved:
            if interchange_id in waiting:
                self._moved.watch(target, look)
        return len(settled) - len(waiting)

    def _reason_for_quarantine(self, interchange_id: uuid.UUID, look: Look) -> str:
        """Why nobody may open a file; empty if it is an ordinary one."""
        if not look.is_regular:
            return "it is not a regular file"
        # Archiving gives a file a second name, so that the names are counted before the claim is complete only.
        if look.links > 1 and not self._trusts_senders and not claims.was_complete(self._connection, interchange_id):
            return f"it has {look.links} names (hard links), and may be a file of somebody else"
        return ""

    def _quarantine(self, interchange_id: uuid.UUID, path: Path, problem: str) -> None:
        claim = Claim(interchange_id=interchange_id, name=_own_name(path), path=path, size=-1, modified_ns=-1)
        problem = f"is quarantined as {path}: {problem}."
        claims.hold(self._connection, claim, ClaimState.FAILED, problem)
        self._report(f"{claim.name} {problem}")

    def _complete_moved(self) -> int:
        there: dict[Path, Look] = {}
        for path in self._moved.paths:
            try:
                there[path] = self._look_at(path)
            except FileNotFoundError:
                self._moved.drop(path)
        settled = {path for path, look in there.items() if self._moved.has_settled(path, look)}
        places = claims.places(self._connection, self._location_id) if self._is_ordered and settled else {}
        ready = self._in_turn([(path, _own_name(path), look) for path, look in there.items()], settled, places)
        for path in ready:
            self._moved.drop(path)
        return self._complete([((_interchange_id(path), path), there[path]) for path in ready])

    # -- mending -----------------------------------------------------------------------------------------------

    def _recover_now_and_then(self) -> None:
        now = self._clock()
        first = self._recovered_at is None
        if self._recovered_at is None or not timedelta() <= now - self._recovered_at < _RECOVER_EVERY:
            # What is there is listed before the rows are read: a task removes a file first and then its row.
            there = self._listed()
            if first and self._archive is not None:
                remove_left_over(self._archive, before=now - _LEFT_OVER_AFTER)
            for found in claims.unfinished(self._connection, self._location_id):
                self._mend(found, first=first)
            self._adopt(there)
            self._recovered_at = now

    def _mend(self, found: Unfinished, *, first: bool) -> None:
        claim = found.claim
        exists = os.path.lexists(claim.path)
        match found.state:
            case ClaimState.CLAIMING if not exists:
                claims.forget(self._connection, [claim.interchange_id])
            case ClaimState.CLAIMING:
                self._watch_moved(claim.path)
            case ClaimState.PUBLISHED if claim.path.parent.name != KEPT_FOLDER:
                self._report(*finish(self._connection, [claim], self._archive))
            case ClaimState.PUBLISHED if not exists:
                claims.forget(self._connection, [claim.interchange_id])
            case ClaimState.PUBLISHED:
                self._report(f"{claim.name} was written to after it was published, and is kept as {claim.path}.")
            case ClaimState.MISSING if not exists and not first:
                self._report(f"{claim.path} is gone, and it was not published.")
            case ClaimState.MISSING if not exists:
                claims.forget(self._connection, [claim.interchange_id])
            case ClaimState.FAILED if exists and not first:
                self._report(f"{claim.path} could not be received; it is tried again at the next start.")
            case ClaimState.FAILED if not exists:
                claims.forget(self._connection, [claim.interchange_id])
            case _:
                claims.settle_again(self._connection, [claim.interchange_id], found.state)
                # At once, and not when somebody looks for those that settle again: a run that ends with what is there
                # would be over by then.
                self._watch_moved(claim.path)

    def _listed(self) -> dict[uuid.UUID, Path]:
        there = {}
        for name in os.listdir(self._folders.private):  # noqa: PTH208 (pathlib takes no descriptor)
            path = self.private_folder / name
            try:
                there[_interchange_id(path)] = path
            except ValueError:
                self._report(f"{path} is not a claimed file; it does not belong there.")
        return there

    def _adopt(self, there: dict[uuid.UUID, Path]) -> None:
        """Files without a row: their database was set back, or a removal was undone by a crash of the machine."""
        strays = there.keys() - claims.known(self._connection, list(there))
        progress = read_progress(self._connection, list(strays)) if strays else {}
        for interchange_id in strays:
            path = there[interchange_id]
            with suppress(FileNotFoundError):
                look = self._look_at(path)
                if not look.is_regular:
                    self._report(f"{path} is not a regular file; it does not belong there.")
                    continue
                stray = Claim(
                    interchange_id=interchange_id,
                    name=_text(_own_name(path)),
                    path=path,
                    size=look.size,
                    modified_ns=look.modified_ns,
                    inode=look.inode,
                )
                if progress[interchange_id].done:
                    self._report(*finish(self._connection, [stray], self._archive))
                else:
                    claims.adopt(self._connection, self._location_id, stray)
                    self._watch_moved(path)

    def _watch_moved(self, path: Path) -> None:
        if path not in self._moved:
            with suppress(FileNotFoundError):
                self._moved.watch(path, self._look_at(path))

    def _look_at(self, path: Path) -> Look:
        """Look at a claimed file. One may be elsewhere: the private folder was another one when it was claimed."""
        if path.parent == self.private_folder:
            return Look.of(os.stat(path.name, dir_fd=self._folders.private, follow_symlinks=False))
        return Look.of(path.lstat())

    def _report(self, *problems: str) -> None:
        self._problems |= dict.fromkeys(problems)


def _private_name(interchange_id: uuid.UUID, name: str) -> str:
    """The id first, so that a file without a row can be told; the name after it, as far as it fits, for people."""
    shortened = os.fsencode(name)[: _LONGEST_NAME - _ID_LENGTH - 1].decode(errors="ignore")
    return f"{interchange_id}~{shortened}"


def _interchange_id(path: Path) -> uuid.UUID:
    return uuid.UUID(path.name[:_ID_LENGTH])


def _own_name(path: Path) -> str:
    """What a claimed file was called, as far as it fits."""
    return path.name[_ID_LENGTH + 1 :]


def _text(name: str) -> str:
    """A name as PostgreSQL can store it: one that is no UTF-8 is shown with its bytes escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")
