"""Which connections of Spark are authenticated and encrypted, by master."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from postroom.errors import StateError
from postroom.spark.settings import (
    AUTHENTICATE,
    ENCRYPT,
    SECRET,
    UI_FILTERS,
    add_secret,
    check_authentication,
    make_authentication_settings,
    reject_secret_arguments,
)


def build_conf(**settings: str) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll([(name.replace("_", "."), value) for name, value in settings.items()])


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_connections_on_one_machine_are_authenticated(master: str) -> None:
    assert make_authentication_settings(master) == {AUTHENTICATE: "true"}
    check_authentication(build_conf(), master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster", "spark://head:7077"])
def test_connections_on_a_cluster_are_authenticated_and_encrypted(master: str) -> None:
    assert make_authentication_settings(master) == {AUTHENTICATE: "true", ENCRYPT: "true"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster", "spark://head:7077"])
@pytest.mark.parametrize("settings", [{}, {"spark_authenticate": "false"}])
def test_a_cluster_without_authentication_is_rejected(master: str, settings: dict[str, str]) -> None:
    with pytest.raises(StateError, match="does not authenticate") as error:
        check_authentication(build_conf(**settings), master)
    assert AUTHENTICATE in error.value.hint


def test_only_a_standalone_cluster_needs_a_secret_of_its_own() -> None:
    authenticated = build_conf(spark_authenticate="true")
    for master in ("yarn", "k8s://https://cluster"):
        check_authentication(authenticated, master)
    with pytest.raises(StateError, match="There is no secret for the cluster spark://head:7077"):
        check_authentication(authenticated, "spark://head:7077")
    check_authentication(build_conf(spark_authenticate="true", spark_authenticate_secret="x"), "spark://head:7077")


def test_a_local_cluster_gets_a_new_secret() -> None:
    found = set()
    for _ in range(2):
        conf = build_conf()
        add_secret(conf, "local-cluster[1,1,1024]")
        found.add(conf.get(SECRET))
    assert len(found) == 2
    assert None not in found
    for master in ("local[2]", "yarn", "spark://head:7077"):
        conf = build_conf()
        add_secret(conf, master)
        assert not conf.contains(SECRET)
    given = build_conf(spark_authenticate_secret="given")
    add_secret(given, "local-cluster[1,1,1024]")
    assert given.get(SECRET) == "given"


def test_the_web_pages_of_a_local_cluster_need_a_token_that_nobody_has() -> None:
    keys = set()
    for _ in range(2):
        conf = build_conf()
        add_secret(conf, "local-cluster[1,1,1024]")
        assert conf.get(UI_FILTERS) == "org.apache.spark.ui.JWSFilter"
        keys.add(conf.get("spark.org.apache.spark.ui.JWSFilter.param.secretKey"))
    assert len(keys) == 2
    given = build_conf(spark_ui_filters="com.example.Login")
    add_secret(given, "local-cluster[1,1,1024]")
    assert given.get(UI_FILTERS) == "com.example.Login"


def test_a_secret_among_the_arguments_is_rejected() -> None:
    reject_secret_arguments({AUTHENTICATE: "true"})
    with pytest.raises(StateError, match="cannot be set with --conf"):
        reject_secret_arguments({SECRET: "x"})
