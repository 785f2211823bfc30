"""Adapters receive and send messages: one package per protocol, all with the same contract.

adapters.File("in", pattern="*.json")
adapters.Http("https://example.com/orders")
adapters.HttpReceive("/orders", port=8080)
adapters.SparkSink("parquet", "out/lake", partition_by=[Region])
"""

from __future__ import annotations

from postroom.adapters.contract import (
    AdapterDefinition,
    Attempt,
    Committed,
    Incoming,
    ReceiveAdapter,
    ReceiveDefinition,
    Refused,
    SendAdapter,
    SendDefinition,
)
from postroom.adapters.file.definition import File
from postroom.adapters.http.definition import Http
from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.kinds import build
from postroom.adapters.null import Null
from postroom.adapters.postgres.definition import Postgres
from postroom.adapters.postgres.receive_definition import PostgresReceive
from postroom.adapters.sink.definition import SinkDefinition, SparkSink, SparkTable
from postroom.adapters.spark_reader.definition import SparkReader
from postroom.secrets.credentials import password_hash

__all__ = [
    "AdapterDefinition",
    "Attempt",
    "Committed",
    "File",
    "Http",
    "HttpReceive",
    "Incoming",
    "Null",
    "Postgres",
    "PostgresReceive",
    "ReceiveAdapter",
    "ReceiveDefinition",
    "Refused",
    "SendAdapter",
    "SendDefinition",
    "SinkDefinition",
    "SparkReader",
    "SparkSink",
    "SparkTable",
    "build",
    "password_hash",
]
