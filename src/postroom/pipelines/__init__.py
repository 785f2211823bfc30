"""Receive pipelines: how an interchange becomes messages with promoted properties. No Spark and no database in here.

What a pipeline yields when it runs is in ``postroom.pipelines.documents.disassembled_batch``, which needs pyarrow; the
definitions below do not.
"""

from __future__ import annotations

from postroom.pipelines import components
from postroom.pipelines.definitions import Csv, FlatFile, Json, JsonLines, PassThrough, Xml, XmlReceive
from postroom.pipelines.flat.layout import Delimited, Field, Positional
from postroom.pipelines.receive_pipeline import Receive, ReceivePipeline, load_pipeline
from postroom.pipelines.rows.definition import Rows

__all__ = [
    "Csv",
    "Delimited",
    "Field",
    "FlatFile",
    "Json",
    "JsonLines",
    "PassThrough",
    "Positional",
    "Receive",
    "ReceivePipeline",
    "Rows",
    "Xml",
    "XmlReceive",
    "components",
    "load_pipeline",
]
