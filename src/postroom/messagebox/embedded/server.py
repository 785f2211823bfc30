"""The embedded PostgreSQL: a MessageBox without a database server to install.

    with EmbeddedServer(Path("orders-home/.postroom/postgres")) as server:
        psycopg.connect(server.url())

Any number of processes may start the server of one folder at the same time. One of them really starts it, the others
attach to it, and the last one to stop stops it: nobody pulls it away from under somebody else. Two file locks do that:
`lock` is held for the length of a start or a stop, `users` is held shared by everybody who has started. The kernel
gives up the locks of a process that is killed, and a server whose starter is killed shuts down by itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote, urlencode

import psutil

from postroom.errors import Unavailable
from postroom.messagebox.embedded.binaries import MAJOR_VERSION, Binaries, find_binaries
from postroom.messagebox.embedded.folder import SOCKET_NAME, ServerFolder
from postroom.messagebox.embedded.postmaster import Guard, Postmaster, end_orphans, find_postmaster, wait_for_end
from postroom.private_folder import remove_private_folder

SUPERUSER = "postgres"
DATABASE = "postroom"
STORE = Path("/var/lib/postroom")

_LOG_BYTES = 10_000_000
_log = logging.getLogger(__name__)


class EmbeddedServer:
    """The server whose files are in the folder `data`; `settings` go before its own and before ALTER SYSTEM's."""

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None, store: Path = STORE) -> None:
        self.folder = ServerFolder(data)
        self._settings = dict(settings or {})
        self._store = store
        self._users: IO[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._socket_folder: Path | None = None

    def start(self, *, timeout: float = 120.0) -> None:
        """Start the server, or attach to the one that runs. After a crash, start it again.

        Recovery may take longer than `timeout`: then call it again to go on waiting, or `stop` to give up.
        """
        deadline = time.monotonic() + timeout
        try:
            self.folder.make()
            with self._exclusive(deadline):
                self._join()
                try:
                    self._ensure_running(deadline)
                except Unavailable:
                    if self.pid is None:
                        self._leave()
                    raise
        except OSError as error:
            raise Unavailable(
                f"The embedded PostgreSQL in {self.folder.data} cannot be used.",
                why=str(error),
                hint="Run this as the user whom that folder belongs to, or choose another --home.",
            ) from error

    def stop(self) -> None:
        """Leave the server; the last process to leave shuts it down. Does nothing if it has not been started."""
        if self._users is None:
            return
        with self._exclusive(time.monotonic() + 120.0):
            alone = self._leave()
            if alone:
                self._shut_down()
            self._let_go()

    def destroy(self) -> None:
        """Stop the server and remove everything that it has ever stored."""
        self.stop()
        pgdata = self.folder.find_pgdata()
        if pgdata is not None:
            if find_postmaster(pgdata) is not None:
                raise Unavailable(f"The server in {self.folder.data} is in use.", hint="Stop what uses it first.")
            shutil.rmtree(pgdata if pgdata.parent == self.folder.data else pgdata.parent)
        shutil.rmtree(self.folder.data, ignore_errors=True)

    def url(self, *, user: str = SUPERUSER, database: str = DATABASE) -> str:
        """The address of one of its databases; it stays the same when the server is started again after a crash."""
        if self._socket_folder is None:
            raise Unavailable(f"The embedded PostgreSQL in {self.folder.data} has not been started.")
        address = urlencode({"host": self._socket_folder, "port": "5432"})
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?{address}"

    def running_url(self) -> str | None:
        """The address of its database if somebody runs it now; this process does not become one of its users."""
        running = self._find()
        if running is None or not running.ready:
            return None
        self._socket_folder = running.socket_folder
        return self.url()

    @property
    def pid(self) -> int | None:
        """The process id of the running server; None when there is none."""
        if self._child is not None:
            self._child.poll()  # a dead child stays in the table of processes until somebody asks
        running = self._find()
        return None if running is None else running.pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _find(self) -> Postmaster | None:
        pgdata = self.folder.find_pgdata()
        return None if pgdata is None else find_postmaster(pgdata)

    @contextmanager
    def _exclusive(self, deadline: float) -> Iterator[None]:
        with self.folder.lock.open("ab") as lock:
            while not _try_lock(lock, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"The embedded PostgreSQL in {self.folder.data} is busy.",
                        why="Another process is starting or stopping it, and that has not ended in time.",
                        hint=f"See {self.folder.log}.",
                    )
                time.sleep(0.02)
            yield

    def _join(self) -> None:
        if self._users is None:
            users = self.folder.users.open("ab")
            fcntl.flock(users, fcntl.LOCK_SH)  # only ever held exclusively under the lock that we have
            self._users = users

    def _leave(self) -> bool:
        """Give up the share in the server; True if nobody else has one."""
        assert self._users is not None
        with self._users:
            alone = _try_lock(self._users, fcntl.LOCK_EX)
        self._users = None
        return alone

    def _ensure_running(self, deadline: float) -> None:
        since = 0
        while True:
            running = self._find()
            if running is None:
                since = self._launch()
                running = self._await_postmaster(deadline, since)
            if running.ready:
                self._socket_folder = running.socket_folder
                return
            self._check_time(deadline, since)
            time.sleep(0.01)  # it is starting, or stopping for somebody who has just left

    def _await_postmaster(self, deadline: float, since: int) -> Postmaster:
        """Wait until the child that was just launched is ready; an end of it before that is a failure for good."""
        while True:
            running = self._find()
            if running is not None and running.ready:
                _log.info("started PostgreSQL %d in %s", running.pid, self.folder.data)
                return running
            if self._child is None or self._child.poll() is not None:
                self._let_go()
                deadline = 0.0
            self._check_time(deadline, since)
            time.sleep(0.01)

    def _launch(self) -> int:
        """Start a server where none runs; returns where in the log it begins."""
        if self._child is not None:
            self._child.kill()  # for one that has not come to life; a dead one is only waited for
            self._child.wait()
        self._let_go()
        pgdata = self.folder.find_pgdata()
        if pgdata is None:
            binaries = find_binaries(self._store)
            pgdata = self._initialise(binaries)
        else:
            binaries = find_binaries(self._store, owner=pgdata.stat().st_uid)
            end_orphans(pgdata)
        self._check(pgdata, binaries)
        (pgdata / "postroom.conf").write_text(_configuration(binaries))
        since = self._turn_log_over()
        sockets = self.folder.socket_folder(pgdata, binaries)
        # It names the process of a killed server, and PostgreSQL believes it while that has not quite gone.
        (sockets / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
        command = [str(binaries.folder / "postgres"), "-D", str(pgdata), "-k", str(sockets)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self.folder.log.open("ab") as log:
            # Its own session, so that Ctrl-C reaches us and not it: what uses the server is to be stopped first.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **binaries.options(),
            )
        self._guard = Guard(self._child.pid)
        return since

    def _check_time(self, deadline: float, since: int) -> None:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"The embedded PostgreSQL in {self.folder.data} did not start.",
                why=self.folder.tail(since) or "It has said nothing.",
                hint=f"Fix what it names and start again; the whole log is {self.folder.log}.",
            )

    def _let_go(self) -> None:
        """The server is gone, or may outlive this process."""
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        if self._child is not None:
            if self._child.poll() is None:
                self._child.returncode = 0  # it goes on for others, and Popen is not to complain about that
            self._child = None

    def _initialise(self, binaries: Binaries) -> Path:
        """Make the data directory with the database in it, all or nothing."""
        pgdata = self.folder.choose_pgdata(binaries, self._store)
        if pgdata.parent != self.folder.data:
            _log.warning(
                "%s is closed to the account that PostgreSQL runs as; the database is kept in %s",
                self.folder.data,
                pgdata.parent,
            )
        unfinished = pgdata.with_name("pgdata.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if binaries.account is not None:
            os.chown(unfinished, binaries.account.uid, binaries.account.gid)
        options = ["--username", SUPERUSER, "--encoding", "UTF8", "--locale", "C"]
        options += ["--auth-local", "trust", "--auth-host", "reject"]
        if self._settings.get("fsync") == "off":
            options.append("--no-sync")
        binaries.run("initdb", "-D", unfinished, *options)
        with (unfinished / "postgresql.conf").open("a") as configuration:
            configuration.write("include = 'postroom.conf'\n")
        (unfinished / "postroom.conf").write_text(_configuration(binaries))
        binaries.run("postgres", "--single", "-D", unfinished, "postgres", given=f"CREATE DATABASE {DATABASE};\n")
        unfinished.rename(pgdata)
        return pgdata

    def _check(self, pgdata: Path, binaries: Binaries) -> None:
        version = (pgdata / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise Unavailable(
                f"The database in {pgdata} was made by PostgreSQL {version}.",
                why=f"The embedded server is PostgreSQL {MAJOR_VERSION}, which cannot read it.",
                hint="Dump it with the old version and restore it into a new --home.",
            )
        if binaries.account is not None and not binaries.may("-x", pgdata):
            raise Unavailable(
                f"The database in {pgdata} cannot be reached.",
                why=f"PostgreSQL runs as {binaries.account.name}, and a folder above it is closed to that account.",
                hint=f"Let {binaries.account.name} pass through the folders above it (chmod o+x).",
            )

    def _turn_log_over(self) -> int:
        """Keep the log from growing for ever; returns its size."""
        with suppress(FileNotFoundError):
            size = self.folder.log.stat().st_size
            if size < _LOG_BYTES:
                return size
            self.folder.log.replace(self.folder.log.with_suffix(".old"))
        return 0

    def _shut_down(self) -> None:
        running = self._find()
        pgdata = self.folder.find_pgdata()
        if pgdata is None:
            return
        if running is None:
            end_orphans(pgdata)
            return
        # Fast, then without a checkpoint: recovery makes up for that at the next start. Never kill -9 first, which
        # leaves the children running.
        for sign, patience in ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
            with suppress(ProcessLookupError):
                os.kill(running.pid, sign)
            if self._child is not None and self._child.pid == running.pid:
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(patience)
            if wait_for_end(running.pid, pgdata, patience):
                break
        else:
            end_orphans(pgdata)
        if running.socket_folder != pgdata:
            remove_private_folder(running.socket_folder)


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _configuration(binaries: Binaries) -> str:
    """Our settings, with what depends on the machine and on the build."""
    megabytes = psutil.virtual_memory().total // 2**20
    lines = [
        files("postroom.messagebox.embedded").joinpath("server.conf").read_text(),
        f"effective_cache_size = {max(megabytes // 4, 256)}MB",
    ]
    compressions = binaries.compressions()
    if compressions:
        lines.append(f"wal_compression = {'lz4' if 'lz4' in compressions else 'zstd'}")
    return "\n".join(lines) + "\n"
