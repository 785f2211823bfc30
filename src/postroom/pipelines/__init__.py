"""Receive pipelines: how an interchange becomes messages with promoted properties. No Spark and no database in here.

What a pipeline yields when it runs is in ``postroom.pipelines.disassembled``, which needs pyarrow; the definitions
below do not.
"""

from __future__ import annotations

from postroom.pipelines.definitions import (
    Csv,
    Json,
    JsonLines,
    PassThrough,
    ReceivePipeline,
    Xml,
    XmlReceive,
    load_pipeline,
)

__all__ = ["Csv", "Json", "JsonLines", "PassThrough", "ReceivePipeline", "Xml", "XmlReceive", "load_pipeline"]
