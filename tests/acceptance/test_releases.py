"""A MessageBox that an earlier release left in use is upgraded by this version, and all of its work is finished."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.releases.create import RELEASES, SCHEMA, create_release, format_order, hash_schema, publish
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.installation import Installation
from tests.support.waiting import wait_until

RELEASED = sorted(path.parent for path in RELEASES.glob(f"*/{SCHEMA}"))


@pytest.fixture
def empty(databases: Databases) -> Iterator[str]:
    """Yield the URL of a database without tables."""
    with databases.clone("template0") as url:
        yield url


@pytest.fixture(params=["this version", *(folder.name for folder in RELEASED)])
def release(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield the folder that a release has left."""
    with open_folder() as folder:
        if request.param == "this version":
            create_release(folder / "release")
        else:
            shutil.copytree(RELEASES / request.param, folder / "release")
        yield folder / "release"


def test_the_work_of_an_earlier_release_is_finished(release: Path, empty: str) -> None:
    with open_folder() as home, Installation(home, empty) as upgraded:
        upgraded.run("restore", str(release))
        assert "All invariants hold." in upgraded.run("check")
        upgraded.run("apply", str(home / "app.py"))
        upgraded.start_host()
        upgraded.start_pipeline()
        publish(upgraded, "order", 2, "--key", "order-2")
        wait_until(lambda: len(waiting(upgraded)) == 3, what="a waiting instance for each order")
        for number in (1, 2, 3):
            publish(upgraded, "payment", number)
        [partner] = [row for row in upgraded.list_suspended() if row["service"] == "Partner"]
        upgraded.run("instance", "resume", partner["instance_id"])
        for folder, numbers in {
            "audit": (2, 3),
            "partner": (1, 2, 3),
            "later": (1, 2, 3),
            "warehouse": (1, 2, 3),
        }.items():
            found = upgraded.wait_for_files(f"out/{folder}", len(numbers))
            assert sorted(found) == [format_order(number) for number in numbers], folder
        wait_until(lambda: len(upgraded.run_json("instance", "list")) == 1, what="the message that is no JSON")
        [left] = upgraded.list_suspended()
        assert left["error_code"] == "PIPELINE"
        assert "All invariants hold." in upgraded.run("check")


def waiting(installation: Installation) -> list[str]:
    """Return the ids of the instances that wait for a payment."""
    return [row["instance_id"] for row in installation.run_json("instance", "list") if row["state"] == "waiting"]


@pytest.mark.parametrize("released", RELEASED, ids=lambda folder: folder.name)
def test_a_released_schema_file_never_changes(released: Path) -> None:
    earlier = (released / SCHEMA).read_text().splitlines()
    assert hash_schema()[: len(earlier)] == earlier
