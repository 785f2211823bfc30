from __future__ import annotations

import random
from pathlib import Path

import pytest

from postroom.message import FRAGMENT_SIZE, FileSlice
from postroom.pipelines import PassThrough
from tests.unit.pipelines.conftest import Receive


@pytest.mark.parametrize("size", [0, 1, FRAGMENT_SIZE])
def test_any_bytes_are_unchanged(receive: Receive, size: int) -> None:
    """TYP-02."""
    content = random.Random(size).randbytes(size)
    assert receive(PassThrough(), content).rows == [
        {"number": 1, "body": content, "offset": None, "length": None, "message_type": None}
    ]


def test_a_large_interchange_is_not_opened(receive: Receive, tmp_path: Path) -> None:
    body = FileSlice(path=tmp_path / "there is no such file", length=5 << 30)
    assert receive(PassThrough(), body).rows == [
        {"number": 1, "body": None, "offset": 0, "length": 5 << 30, "message_type": None}
    ]
