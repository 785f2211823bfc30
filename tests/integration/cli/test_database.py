from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from postroom.cli.connection import describe_stopped_server
from postroom.cli.exit_codes import ExitCode
from postroom.cli.options import CommandOptions
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from tests.integration.cli.conftest import Run
from tests.support.contents import Contents


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_postgresql_runs_alone_until_it_is_stopped(home: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "postroom", "database", "run", "--home", str(home), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "PostgreSQL is running. Press Ctrl-C to stop.\n"
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        with connect(url) as connection:
            assert Contents(connection).count("messages") == 0
        process.send_signal(number)
        assert process.wait() == ExitCode.OK
        assert process.stderr.read() == "PostgreSQL has stopped.\n"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_the_last_line_says_whether_another_process_keeps_postgresql_running(home: Path) -> None:
    with EmbeddedServer(server_folder(home)):
        assert "keeps running, because another process uses" in describe_stopped_server(CommandOptions(home=home))
    assert describe_stopped_server(CommandOptions(home=home)) == "PostgreSQL has stopped."
    assert describe_stopped_server(CommandOptions(home=home, database="postgresql://db/orders")) == ""


def test_the_url_of_another_server_is_rejected(run: Run) -> None:
    refused = run("database", "run")
    assert refused.code == ExitCode.USAGE
    assert "Leave out --database." in refused.err
