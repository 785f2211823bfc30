"""What ``postroom demo component`` sends, and the result that it expects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

from postroom.example_applications import Step, drop_files

FILES, READINGS, DAMAGED = 5, 4, 2


def steps() -> Iterator[Step]:
    """Good files, and some that lost a line on their way."""
    files = [
        [json.dumps({"sensor": f"s{number}", "value": value}).encode() for value in range(READINGS)]
        for number in range(FILES)
    ]
    contents = {f"readings-{number}.jsonl": _with_checksum(lines, lines) for number, lines in enumerate(files)}
    contents |= {
        f"damaged-{number}.jsonl": _with_checksum(files[number][1:], files[number]) for number in range(DAMAGED)
    }
    yield Step(
        what=f"{FILES} files of {READINGS} readings dropped, and {DAMAGED} damaged files",
        act=drop_files("readings", contents),
        outputs={"out/readings": Counter(line for lines in files for line in lines)},
        suspended=Counter(PIPELINE=DAMAGED),
    )


def _with_checksum(lines: list[bytes], original: list[bytes]) -> bytes:
    checksum = sha256(b"\n".join(original)).hexdigest()
    return b"\n".join([*lines, f"sha256={checksum}".encode(), b""])
