"""The JVM killed with -9: its process ends with an error, and nothing stays behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from postroom.private_folder import PARENT
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.pipelines import family_of, pipeline, wait_for_end
from tests.support.waiting import PATIENCE, wait_until


def scratch_of(process: subprocess.Popen[bytes]) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{process.pid}"


def test_a_killed_jvm_ends_the_process_with_an_error(box: Box, folder: Path, tmp_path: Path) -> None:
    add_file_location(box, folder)
    with pipeline(box, tmp_path) as process:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom stream'"
        wait_until(lambda: box.one(sessions) == 1, what="a stream")
        family = family_of(process)
        [jvm] = [member for member in family if member.name() == "java"]
        jvm.kill()
        assert process.wait(PATIENCE) == 1
        assert "Spark has died" in (tmp_path / "pipeline.log").read_text()
        wait_for_end(family)
    assert not scratch_of(process).exists()
