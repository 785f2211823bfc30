"""Authentication and encryption of the connections between Spark's processes.

Without authentication every user of the machine, and of the network of a cluster, can run code in the driver. Who
creates the shared secret depends on the master:

- ``local``, YARN and Kubernetes: Spark creates one for each session and distributes it.
- ``local-cluster``: Postroom creates one. It is set when the JVM runs, because arguments are visible to all users. Its
  master and workers also have web pages, which Spark cannot turn off. Nobody gets a token for them.
- Standalone: the cluster has a secret, which its administrator writes to spark-defaults.conf on each machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from postroom.errors import StateError
from postroom.spark.settings import is_local_cluster, is_this_machine

if TYPE_CHECKING:
    from pyspark import SparkConf

AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"
ENCRYPT = "spark.network.crypto.enabled"

#: The filter of all web pages, and the key of the tokens that it requires.
UI_FILTERS = "spark.ui.filters"
_TOKEN_FILTER = "org.apache.spark.ui.JWSFilter"
_TOKEN_KEY = f"spark.{_TOKEN_FILTER}.param.secretKey"

_SECRET_BYTES = 32


def make_authentication_settings(master: str) -> dict[str, str]:
    """Return the settings for a master. Connections between machines are also encrypted."""
    if is_this_machine(master):
        return {AUTHENTICATE: "true"}
    return {AUTHENTICATE: "true", ENCRYPT: "true"}


def reject_secret_arguments(settings: Mapping[str, str]) -> None:
    """Raise StateError if the secret is among settings that become arguments of the JVM."""
    if SECRET in settings:
        raise StateError(
            f"{SECRET} cannot be set with --conf.",
            why="Arguments are visible to all users of the machine.",
            hint="Write it to spark-defaults.conf, which only Spark's account can read.",
        )


def add_secret(conf: SparkConf, master: str) -> None:
    """Set new secrets for the connections and the web pages of a ``local-cluster``, unless it has them. Call it when
    the JVM has been started."""
    if not is_local_cluster(master):
        return
    if not conf.contains(SECRET):
        conf.set(SECRET, secrets.token_hex(_SECRET_BYTES))
    if not conf.contains(UI_FILTERS):
        conf.set(UI_FILTERS, _TOKEN_FILTER)
        conf.set(_TOKEN_KEY, secrets.token_urlsafe(_SECRET_BYTES))


def check_authentication(conf: SparkConf, master: str) -> None:
    """Raise StateError if the connections of a cluster would not be authenticated."""
    if is_this_machine(master):
        return
    if conf.get(AUTHENTICATE, "false") != "true":
        raise StateError(
            f"Spark does not authenticate its connections on {master}.",
            why="Anyone who can reach the driver or an executor could run code there and read messages.",
            hint=f"Set {AUTHENTICATE}=true and {ENCRYPT}=true, with spark-submit --conf or in spark-defaults.conf.",
        )
    if not master.startswith(("yarn", "k8s://")) and not conf.contains(SECRET):
        raise StateError(
            f"There is no secret for the cluster {master}.",
            why="A standalone cluster shares one secret between its machines and its applications.",
            hint=f"Write {SECRET} to spark-defaults.conf on each machine, readable for Spark's account alone.",
        )
