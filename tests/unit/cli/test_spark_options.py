"""--master and --conf are passed to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom.cli.main import main
from postroom.spark.settings import add_bulk_settings, make_settings
from postroom.up.supervisor import SparkOptions


@pytest.fixture
def pipeline_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options that the pipeline process is started with."""
    given: dict[str, Any] = {}

    monkeypatch.setattr("postroom.spark.run.run_pipeline", lambda *_, **options: given.update(options) or {})
    monkeypatch.setattr("postroom.operations.hosts.check_host_to_run", lambda url, name: name)
    return given


def test_master_and_settings_are_passed_to_spark(pipeline_options: dict[str, Any]) -> None:
    settings = ["--conf", "spark.executor.memory=4g", "--conf", "spark.executor.extraJavaOptions=-Da=b -Dc=d"]
    assert main(["pipeline", "run", "Main", "--database", "x", "--master", "spark://head:7077", *settings]) == 0
    assert pipeline_options["master"] == "spark://head:7077"
    assert pipeline_options["settings"] == {
        "spark.executor.memory": "4g",
        "spark.executor.extraJavaOptions": "-Da=b -Dc=d",
    }


def test_the_master_can_be_set_in_the_environment(
    pipeline_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_MASTER", "yarn")
    assert main(["pipeline", "run", "Main", "--database", "x"]) == 0
    assert (pipeline_options["master"], pipeline_options["settings"]) == ("yarn", {})


@pytest.mark.parametrize("setting", ["spark.executor.memory", "executor.memory=4g", "=4g"])
def test_an_invalid_setting_is_rejected(
    setting: str, pipeline_options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "run", "Main", "--database", "x", "--conf", setting]) == 2
    assert "is not a Spark setting" in capsys.readouterr().err
    assert pipeline_options == {}


def test_up_passes_master_and_settings_to_its_pipelines() -> None:
    options = SparkOptions(master="yarn", settings={"spark.a": "b=c", "spark.d": "e f"})
    assert options.as_arguments() == ["--master", "yarn", "--conf", "spark.a=b=c", "--conf", "spark.d=e f"]
    assert SparkOptions().as_arguments() == []


def test_local_folders_and_sockets_are_not_used_on_a_cluster(tmp_path: Path) -> None:
    here, elsewhere = make_settings("local[2]", tmp_path), make_settings("spark://head:7077", tmp_path)
    assert here["spark.local.dir"] == here["spark.python.unix.domain.socket.dir"] == str(tmp_path)
    assert not [value for value in elsewhere.values() if str(tmp_path) in value or "localhost" in value]
    assert elsewhere.items() <= here.items()


def test_bulk_uses_the_optimising_compiler_unless_it_is_configured_otherwise() -> None:
    options = "spark.driver.extraJavaOptions"
    assert add_bulk_settings(None) == {options: "-XX:TieredStopAtLevel=4"}
    given = {options: "-XX:TieredStopAtLevel=2", "spark.ui.enabled": "true"}
    assert add_bulk_settings(given) == {
        options: "-XX:TieredStopAtLevel=4 -XX:TieredStopAtLevel=2",
        "spark.ui.enabled": "true",
    }
