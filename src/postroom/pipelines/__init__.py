"""Pipelines: how an interchange becomes messages with promoted properties, and how a message becomes what is sent.

No Spark and no database in here.

What a pipeline yields when it runs is in ``postroom.pipelines.documents.disassembled_batch``, which needs pyarrow; the
definitions below do not.
"""

from __future__ import annotations

from postroom.pipelines import components
from postroom.pipelines.definition import PassThrough
from postroom.pipelines.flat.definition import Csv, FlatFile
from postroom.pipelines.flat.layout import Delimited, Field, Positional
from postroom.pipelines.json.definition import Json, JsonLines
from postroom.pipelines.receive.definition import Receive, ReceivePipeline, load_pipeline
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.send.definition import Send, XmlTransmit
from postroom.pipelines.xml.definition import Xml, XmlReceive

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
    "Send",
    "Xml",
    "XmlReceive",
    "XmlTransmit",
    "components",
    "load_pipeline",
]
