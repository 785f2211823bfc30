"""A temporary RabbitMQ broker on the loopback interface.

The programs are those of Debian's package ``rabbitmq-server``. Node and port mapper use free ports, so that they do not
connect to another broker. Both are child processes and are ended by their process ids.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

#: The program on the path changes to another account and reads the settings of the system, so it is not used.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PATIENCE_SECONDS = 120.0
_SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.6
log.console = false
log.file.level = error
"""


def is_installed() -> bool:
    return _SERVER.exists() and shutil.which("epmd") is not None


@contextmanager
def broker() -> Iterator[int]:
    """Start a new broker and yield its port."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-rabbitmq-") as folder:
        home = Path(folder)
        port, mapper_port, node_port = _free_ports(3)
        (home / "rabbitmq.conf").write_text(_SETTINGS.format(port=port))
        (home / "plugins").write_text("[].\n")
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": folder,
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        with _run_program(["epmd"], environment), _run_program([str(_SERVER)], environment) as server:
            _wait_for(port, server)
            yield port


@contextmanager
def _run_program(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program. End it and its child processes afterwards."""
    devnull = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdin=devnull, stdout=devnull, stderr=devnull)
    try:
        yield process
    finally:
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        _, remaining = psutil.wait_procs(processes, timeout=30)
        for one in remaining:
            one.kill()
        process.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"RabbitMQ failed to start with exit code {server.returncode}.")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("RabbitMQ did not start in time.")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
