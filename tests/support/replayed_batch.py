"""Run a batch of claimed files again, as if the machine had crashed right after its commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from postroom.files.safe_files import get_inode
from tests.support.box import Box


def store_claims(box: Box) -> Callable[[], None]:
    """Store the current file claims and files. Return a function that restores both."""
    with box.connection.cursor() as cursor:
        claimed = cursor.execute("SELECT * FROM file_claims").fetchall()
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in claimed]
    copies = {Path(row["path"]): (Path(row["path"]).read_bytes(), row["modified_ns"]) for row in rows}

    def restore() -> None:
        with box.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO file_claims VALUES ({', '.join(['%s'] * len(names))})", claimed)
        for path, (content, modified_ns) in copies.items():
            path.write_bytes(content)
            os.utime(path, ns=(modified_ns, modified_ns))
            # A removal that a crash undoes brings back the same inode.
            box.connection.execute(
                "UPDATE file_claims SET inode = %s WHERE path = %s", (get_inode(path.stat()), str(path))
            )

    return restore
