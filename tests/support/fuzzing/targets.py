"""All fuzz targets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.fuzzing import assemblers, decoders, documents, texts
from tests.support.fuzzing.target import Target

#: Each takes a folder for the files of the target.
TARGETS: Mapping[str, Callable[[Path], Target]] = {
    "json": lambda _: documents.make_json_target(),
    "xml": lambda _: documents.make_xml_target(),
    "csv": lambda _: documents.make_csv_target(),
    "flat": lambda _: documents.make_flat_target(),
    "assemblers": lambda _: assemblers.make_assembler_target(),
    "mime": lambda _: decoders.make_mime_target(),
    "smime": decoders.make_smime_target,
    "zip": lambda _: decoders.make_zip_target(),
    "http": lambda _: texts.make_http_target(),
    "filter": lambda _: texts.make_filter_target(),
    "application": texts.make_application_target,
}
