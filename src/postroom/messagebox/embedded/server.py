"""The embedded PostgreSQL: a MessageBox without a database server to install.

    with EmbeddedServer(Path("orders-home/.postroom/postgres")) as server:
        psycopg.connect(server.url())

Any number of processes may start the server of one folder at the same time. One of them starts it, the others attach to
it, and the last one to stop shuts it down. Two files coordinate them. A start or a stop locks `lock` exclusively. Every
process that uses the server has a shared lock on `users`. The kernel releases the locks of a killed process, and a
server whose starter is killed shuts down.
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
from postroom.files.private_folder import remove_private_folder
from postroom.messagebox.embedded.binaries import MAJOR_VERSION, Binaries, find_binaries
from postroom.messagebox.embedded.folder import SOCKET_NAME, ServerFolder
from postroom.messagebox.embedded.postmaster import Guard, Postmaster, end_orphans, find_postmaster, wait_for_end

SUPERUSER = "postgres"
DATABASE = "postroom"
STORE = Path("/var/lib/postroom")

_LOG_BYTES = 10_000_000
_log = logging.getLogger(__name__)


class EmbeddedServer:
    """The server in the folder `data`. `settings` override its own settings and those of ALTER SYSTEM."""

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None, store: Path = STORE) -> None:
        self.folder = ServerFolder(data)
        self._settings = dict(settings or {})
        self._store = store
        self._users: IO[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._socket_folder: Path | None = None

    def start(self, *, timeout: float = 120.0) -> None:
        """Start the server, or attach to the running one. Restart it after a crash.

        Recovery may take longer than `timeout`. Then call it again to continue waiting, or call `stop`.
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
                hint="Run this as the owner of that folder, or choose another --home.",
            ) from error

    def stop(self) -> None:
        """Detach from the server. The last process to detach shuts it down. No effect if it was not started."""
        if self._users is None:
            return
        with self._exclusive(time.monotonic() + 120.0):
            is_last = self._leave()
            if is_last:
                self._shut_down()
            self._release_child()

    def destroy(self) -> None:
        """Stop the server and delete all its data."""
        self.stop()
        pgdata = self.folder.find_pgdata()
        if pgdata is not None:
            if find_postmaster(pgdata) is not None:
                raise Unavailable(f"The server in {self.folder.data} is in use.", hint="Stop what uses it first.")
            shutil.rmtree(pgdata if pgdata.parent == self.folder.data else pgdata.parent)
        shutil.rmtree(self.folder.data, ignore_errors=True)

    def url(self, *, user: str = SUPERUSER, database: str = DATABASE) -> str:
        """Return the URL of one of its databases. It does not change when the server is restarted after a crash."""
        if self._socket_folder is None:
            raise Unavailable(f"The embedded PostgreSQL in {self.folder.data} has not been started.")
        address = urlencode({"host": self._socket_folder, "port": "5432"})
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?{address}"

    def running_url(self) -> str | None:
        """Return the URL of its database if the server runs, without attaching to it. Otherwise return None."""
        running = self._find()
        if running is None or not running.is_ready:
            return None
        self._socket_folder = running.socket_folder
        return self.url()

    @property
    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        if self._child is not None:
            self._child.poll()  # reap a dead child
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
                        why="Another process is starting or stopping it, and has not finished in time.",
                        hint=f"See {self.folder.log}.",
                    )
                time.sleep(0.02)
            yield

    def _join(self) -> None:
        if self._users is None:
            users = self.folder.users.open("ab")
            # This does not wait: others lock it exclusively only while they have `lock`, which this process has.
            fcntl.flock(users, fcntl.LOCK_SH)
            self._users = users

    def _leave(self) -> bool:
        """Release the shared lock. Return True if no other process uses the server."""
        assert self._users is not None
        with self._users:
            is_last = _try_lock(self._users, fcntl.LOCK_EX)
        self._users = None
        return is_last

    def _ensure_running(self, deadline: float) -> None:
        since = 0
        while True:
            running = self._find()
            if running is None:
                since = self._launch()
                running = self._await_postmaster(deadline, since)
            if running.is_ready:
                self._socket_folder = running.socket_folder
                return
            self._check_time(deadline, since)
            time.sleep(0.01)  # it is starting, or another process is stopping it

    def _await_postmaster(self, deadline: float, since: int) -> Postmaster:
        """Wait until the new child is ready. Fail if it ends before that."""
        while True:
            running = self._find()
            if running is not None and running.is_ready:
                _log.info("started PostgreSQL %d in %s", running.pid, self.folder.data)
                return running
            if self._child is None or self._child.poll() is not None:
                self._release_child()
                deadline = 0.0
            self._check_time(deadline, since)
            time.sleep(0.01)

    def _launch(self) -> int:
        """Start a server. Return the position in the log at which its messages start."""
        if self._child is not None:
            self._child.kill()  # it may be alive and not ready
            self._child.wait()
        self._release_child()
        pgdata = self.folder.find_pgdata()
        if pgdata is None:
            binaries = find_binaries(self._store)
            pgdata = self._initialise(binaries)
        else:
            binaries = find_binaries(self._store, owner=pgdata.stat().st_uid)
            end_orphans(pgdata)
        self._check(pgdata, binaries)
        (pgdata / "postroom.conf").write_text(_configuration(binaries))
        since = self._rotate_log()
        sockets = self.folder.socket_folder(pgdata, binaries)
        # A lock file of a killed server prevents a start as long as its process has not completely ended.
        (sockets / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
        command = [str(binaries.folder / "postgres"), "-D", str(pgdata), "-k", str(sockets)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self.folder.log.open("ab") as log:
            # Its own session, so that Ctrl-C does not reach it: its clients must be stopped first.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **binaries.get_options(),
            )
        self._guard = Guard(self._child.pid)
        return since

    def _check_time(self, deadline: float, since: int) -> None:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"The embedded PostgreSQL in {self.folder.data} did not start.",
                why=self.folder.tail(since) or "It has written nothing to its log.",
                hint=f"Fix the reported problem and start it again. The log is {self.folder.log}.",
            )

    def _release_child(self) -> None:
        """Forget the child: it has ended, or may outlive this process."""
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        if self._child is not None:
            if self._child.poll() is None:
                self._child.returncode = 0  # it continues for other processes; Popen must not warn about it
            self._child = None

    def _initialise(self, binaries: Binaries) -> Path:
        """Create the data directory with the database, atomically."""
        pgdata = self.folder.choose_pgdata(binaries, self._store)
        if pgdata.parent != self.folder.data:
            _log.warning(
                "the account that PostgreSQL runs as cannot access %s; the database is stored in %s",
                self.folder.data,
                pgdata.parent,
            )
        unfinished = pgdata.with_name("pgdata.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if binaries.account is not None:
            os.chown(unfinished, binaries.account.pw_uid, binaries.account.pw_gid)
        options = ["--username", SUPERUSER, "--encoding", "UTF8", "--locale", "C"]
        options += ["--auth-local", "trust", "--auth-host", "reject"]
        if self._settings.get("fsync") == "off":
            options.append("--no-sync")
        binaries.run("initdb", "-D", unfinished, *options)
        with (unfinished / "postgresql.conf").open("a") as configuration:
            configuration.write("include = 'postroom.conf'\n")
        (unfinished / "postroom.conf").write_text(_configuration(binaries))
        binaries.run("postgres", "--single", "-D", unfinished, "postgres", stdin=f"CREATE DATABASE {DATABASE};\n")
        unfinished.rename(pgdata)
        return pgdata

    def _check(self, pgdata: Path, binaries: Binaries) -> None:
        version = (pgdata / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise Unavailable(
                f"The database in {pgdata} was created by PostgreSQL {version}.",
                why=f"The embedded server is PostgreSQL {MAJOR_VERSION}, which cannot read it.",
                hint="Dump it with the old version and restore it into a new --home.",
            )
        if binaries.account is not None and not binaries.has_access("-x", pgdata):
            raise Unavailable(
                f"The database in {pgdata} cannot be accessed.",
                why=f"PostgreSQL runs as {binaries.account.pw_name}, which cannot enter a folder above it.",
                hint=f"Let {binaries.account.pw_name} enter the folders above it (chmod o+x).",
            )

    def _rotate_log(self) -> int:
        """Rotate a large log. Return the size of the current one."""
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
        # A fast shutdown, then an immediate one, which is followed by recovery at the next start. SIGKILL comes last,
        # because it leaves the children running.
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
    """Return Postroom's settings, including those that depend on the machine and on the build."""
    megabytes = psutil.virtual_memory().total // 2**20
    lines = [
        files("postroom.messagebox.embedded").joinpath("server.conf").read_text(),
        f"effective_cache_size = {max(megabytes // 4, 256)}MB",
    ]
    compressions = binaries.find_compressions()
    if compressions:
        lines.append(f"wal_compression = {'lz4' if 'lz4' in compressions else 'zstd'}")
    return "\n".join(lines) + "\n"
