"""The files of an embedded server.

    <data>/lock, users     locks between the processes that use the server
    <data>/server.json     the server's id, and the folder of its database if that is elsewhere
    <data>/log             PostgreSQL's log
    <data>/pgdata/         PostgreSQL's data directory

If root runs PostgreSQL as a system account that cannot enter <data>, pgdata is in the store instead
(/var/lib/postroom), and server.json has its path.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sys
from pathlib import Path

from postroom.errors import Unavailable
from postroom.files.private_folder import private_folder
from postroom.files.safe_files import replace_file
from postroom.messagebox.embedded.binaries import Binaries

# The maximum length of the address of a unix socket, without its terminating zero.
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
SOCKET_NAME = ".s.PGSQL.5432"


def server_folder(home: Path) -> Path:
    """Return the folder of the embedded server of a home folder."""
    return home.absolute() / ".postroom" / "postgres"


class ServerFolder:
    """The files of the server whose folder is `data`."""

    def __init__(self, data: Path) -> None:
        self.data = data.expanduser().absolute()
        self.lock = self.data / "lock"
        self.users = self.data / "users"
        self.log = self.data / "log"
        self._record_path = self.data / "server.json"

    def make(self) -> None:
        """Create the folder, which contains the lock that everything else needs."""
        self.data.mkdir(parents=True, exist_ok=True)

    def find_pgdata(self) -> Path | None:
        """Return the data directory of an initialised server, or None."""
        pgdata = Path(self._read().get("database_folder", self.data)) / "pgdata"
        return pgdata if pgdata.exists() else None

    def choose_pgdata(self, binaries: Binaries, store: Path) -> Path:
        """Choose the path of a new data directory that the account of `binaries` can enter. Create its parent."""
        record = {"id": secrets.token_hex(4)} | self._read()
        if binaries.account is not None:
            self.data.chmod(0o755)
            if not binaries.has_access("-x", self.data):
                # The id separates the database of a new folder from that of an old folder with the same path.
                path = hashlib.sha256(str(self.data).encode()).hexdigest()[:12]
                record["database_folder"] = str(store / f"{path}-{record['id']}")
        replace_file(self._record_path, f"{json.dumps(record)}\n".encode())
        folder = Path(record.get("database_folder", self.data))
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        except OSError as error:
            raise Unavailable(
                f"The folder {folder} for the database of {self.data} cannot be created.",
                why=f"The account that PostgreSQL runs as cannot enter {self.data}. {error}",
                hint="Choose a --home that every account can enter, or run Postroom as an ordinary user.",
            ) from error
        return folder / "pgdata"

    def socket_folder(self, pgdata: Path, binaries: Binaries) -> Path:
        """Return the data directory if its path is valid for a socket, otherwise a short private folder."""
        if _is_socket_address(pgdata / SOCKET_NAME):
            return pgdata
        path = hashlib.sha256(str(pgdata).encode()).hexdigest()[:8]
        name = f"{self._read()['id']}-{path}"
        if binaries.account is None:
            return private_folder(name)
        return private_folder(name, uid=binaries.account.pw_uid, gid=binaries.account.pw_gid)

    def tail(self, since: int, lines: int = 20) -> str:
        """Return the last lines of the log after position `since`."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(since)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _read(self) -> dict[str, str]:
        try:
            record: dict[str, str] = json.loads(self._record_path.read_text())
        except FileNotFoundError:
            return {}
        return record


def _is_socket_address(path: Path) -> bool:
    """Return True if a path is short enough, and has no special characters of connection strings or settings."""
    return len(bytes(path)) <= SOCKET_PATH_BYTES and re.fullmatch(r"[A-Za-z0-9/._+=-]+", str(path)) is not None
