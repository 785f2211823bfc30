"""Checks that a Spark reader and its pipeline fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from postroom.adapters import SparkReader
from postroom.adapters.spark_schema import Column
from postroom.application.declarations import ReceivePort
from postroom.pipelines import Rows


def bulk_problems(adapter: object, pipeline: object) -> Iterator[str]:
    """Yield the conflicts between a Spark reader and its pipeline. The problems of each alone are not checked here."""
    if not isinstance(adapter, SparkReader):
        if isinstance(pipeline, Rows):
            yield "pipelines.Rows works only with adapters.SparkReader; other adapters do not read rows."
        return
    if pipeline is None:
        pipeline = Rows()
    if not isinstance(pipeline, Rows):
        note = "" if getattr(pipeline, "recoverable", False) else " Bulk files are always recoverable."
        yield f"adapters.SparkReader reads rows, so its pipeline must be pipelines.Rows(...).{note}"
    elif not adapter.problems() and adapter.known_columns is not None:
        yield from _column_problems(adapter, pipeline, {column.name: column for column in adapter.known_columns})


def bulk_map_problems(port: ReceivePort) -> Iterator[str]:
    """Yield a problem if a receive port of rows has maps: rows are published without maps."""
    for location in port.locations:
        if port.maps and isinstance(location.adapter, SparkReader):
            yield f"maps: the location {location.name!r} reads rows, which are not mapped; map them at send ports."


def _column_problems(adapter: SparkReader, pipeline: Rows, columns: Mapping[str, Column]) -> Iterator[str]:
    there = f"its columns are {', '.join(columns)}"
    for prop, name in pipeline.promotions.entries:
        column = columns.get(name)
        if column is None:
            yield f"pipeline: {prop.dotted_name} is promoted from {name!r}, which the reader does not yield; {there}."
        elif not column.can_promote(prop.value_type):
            property_type = f"{prop.dotted_name} is {prop.value_type.noun} property"
            yield f"pipeline: {property_type}, but the column {name!r} is {column.type}."
    complete = pipeline.with_columns(tuple(columns), adapter.body_column)
    if complete.column is not None:
        column = columns.get(complete.column)
        if column is None:
            yield f"pipeline: the body is the column {complete.column!r}, which the reader does not yield; {there}."
        elif not column.is_bytes:
            yield f"pipeline: the column {complete.column!r} is {column.type}; a body is text or binary."
    if complete.body == "csv":
        for column in columns.values():
            if column.is_nested:
                yield f"pipeline: body is 'csv', but the column {column.name!r} is {column.type}; write it as JSON."
