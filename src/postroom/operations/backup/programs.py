"""Run pg_dump, pg_restore and psql. Passwords are passed by environment variables, which other users cannot read."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from psycopg import pq

from postroom.errors import Unavailable
from postroom.files.safe_files import CHUNK_SIZE
from postroom.messagebox.embedded.binaries import find_program

#: Rights and owners are not dumped: the schema of the restoring version defines them.
_WITHOUT_RIGHTS = ("--no-owner", "--no-privileges")


def dump_database(url: str, snapshot: str, target: Path) -> tuple[int, str]:
    """Dump the MessageBox as of an exported snapshot. Return the size and the checksum of the dump."""
    command = [
        *(str(find_program("pg_dump")), "--format=custom", "--compress=1", *_WITHOUT_RIGHTS),
        f"--snapshot={snapshot}",
        "--schema=messagebox",
        "--schema=management",
        "--no-password",
    ]
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as errors, target.open("xb") as writer:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=_build_environment(url)) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(CHUNK_SIZE):
                writer.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        _raise_if_failed(process, "pg_dump", errors)
        writer.flush()
        os.fsync(writer.fileno())
    return size, digest.hexdigest()


def restore_database(url: str, dump: Path, statements: str) -> None:
    """Restore a dump and run more statements, all in one transaction.

    The transaction is committed by the last line of the script. If a program dies before that, nothing is restored.
    """
    extract = [str(find_program("pg_restore")), "--file=-", *_WITHOUT_RIGHTS, str(dump)]
    run = [str(find_program("psql")), "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1"]
    with tempfile.TemporaryFile() as extract_errors, tempfile.TemporaryFile() as run_errors:
        with subprocess.Popen(
            run, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=run_errors, env=_build_environment(url)
        ) as psql:
            assert psql.stdin is not None
            try:
                psql.stdin.write(b"BEGIN;\n")
                with subprocess.Popen(extract, stdout=subprocess.PIPE, stderr=extract_errors) as pg_restore:
                    assert pg_restore.stdout is not None
                    while chunk := pg_restore.stdout.read(CHUNK_SIZE):
                        psql.stdin.write(chunk)
                _raise_if_failed(pg_restore, "pg_restore", extract_errors)
                psql.stdin.write(f"\n{statements}\nCOMMIT;\n".encode())
                psql.stdin.close()
            except BrokenPipeError:
                pass  # psql has ended, and its error output has the reason
            except BaseException:
                psql.kill()
                raise
        _raise_if_failed(psql, "psql", run_errors)


def _build_environment(url: str) -> dict[str, str]:
    environment = dict(os.environ)
    for option in pq.Conninfo.parse(url.encode()):
        if option.val is not None and option.envvar is not None:
            environment[option.envvar.decode()] = option.val.decode()
    return environment


def _raise_if_failed(process: subprocess.Popen[bytes], program: str, errors: IO[bytes]) -> None:
    if process.returncode != 0:
        errors.seek(0)
        raise Unavailable(
            f"PostgreSQL's {program} failed (exit {process.returncode}).",
            why=errors.read().decode(errors="replace").strip(),
            hint="Fix the reported problem and run the command again.",
        )
