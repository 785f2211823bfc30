"""A scan starts when a file was put into the watched folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.receiving.files.folder_watch import FolderWatch
from tests.support.waiting import PATIENCE


def test_a_file_that_is_moved_or_written_to_the_folder_ends_the_wait(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    watch = FolderWatch(folder)
    assert not watch.wait(0.0)
    (tmp_path / "order.json").write_text("{}")
    (tmp_path / "order.json").rename(folder / "order.json")
    assert watch.wait(PATIENCE)
    (folder / "written.json").write_text("{}")
    assert watch.wait(PATIENCE)
    assert not watch.wait(0.0)
    watch.close()
    watch.close()


def test_a_file_that_is_still_open_does_not_end_the_wait(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    with (tmp_path / "half.json").open("w") as file:
        file.write("{")
        file.flush()
        assert not watch.wait(0.0)
    assert watch.wait(PATIENCE)
    watch.close()


def test_without_a_watch_the_wait_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = FolderWatch(tmp_path / "missing")
    slept: list[float] = []
    monkeypatch.setattr("postroom.receiving.files.folder_watch.time.sleep", slept.append)
    assert not watch.wait(0.1)
    assert slept == [0.1]
    watch.close()
