"""Receive pipelines: how an interchange becomes messages with promoted properties. No Spark and no database in here.

What a pipeline yields when it runs is in ``postroom.pipelines.disassembled``, which needs pyarrow; the definitions
below do not.
"""

from __future__ import annotations

from postroom.pipelines import components
from postroom.pipelines.definitions import Csv, Json, JsonLines, PassThrough, Xml, XmlReceive
from postroom.pipelines.receive_definition import Receive, ReceivePipeline, load_pipeline

__all__ = [
    "Csv",
    "Json",
    "JsonLines",
    "PassThrough",
    "Receive",
    "ReceivePipeline",
    "Xml",
    "XmlReceive",
    "components",
    "load_pipeline",
]
