"""How claimed files are read by Spark's own reader, so that the same rows come of the same splits whenever it is done.

Where Spark splits a file depends on settings, on the number of cores and on the other files that are read with it; what
is a row, on options and schema; and what is a message, on the pipeline, which names columns of that schema. All of that
is fixed when a file is first begun, is kept with its claim, and is used again at a restart, whatever the settings and
the definition are by then.

A split is of ``split_bytes``, always: with the price of opening a file as high as a split is large, Spark neither makes
splits smaller for more cores nor puts two of them into one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from postroom.adapters import SparkReader
from postroom.adapters.spark_reader.definition import CORRUPT
from postroom.agent.receiving.interchange import CHUNK_BYTES, CHUNK_ROWS
from postroom.messagebox.configuration import ReceiveLocation
from postroom.pipelines import Rows
from postroom.pipelines.rows.batch import BAD, BODY, value_name
from postroom.spark.intake.file_claims import FileClaim

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What identifies a row's split.
FILE, START, LENGTH = "file", "start", "length"
#: A claimed file's name begins with its interchange id.
_ID_LENGTH = 36

#: Enough splits that the tasks end together, but none so small that starting its task is the larger part of the work.
_SPLITS_PER_CORE = 3
_SMALLEST_SPLIT = 4 << 20

#: Settings of Spark that have a say in what is a split, a row or a value.
_SHAPING = (
    *("spark.sql.files.", "spark.sql.sources.", "spark.sql.legacy.", "spark.sql.execution.arrow."),
    *("spark.sql.csv.", "spark.sql.json.", "spark.sql.xml.", "spark.sql.parquet.", "spark.sql.orc."),
    *("spark.sql.ansi.", "spark.sql.session.timeZone", "spark.sql.timestampType", "spark.sql.caseSensitive"),
)

_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_CSV_OPTIONS = {"escape": '"', "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All that decides which rows come of a file, and which messages of them."""

    format: str
    options: Mapping[str, str]
    schema: str | None
    split_bytes: int
    settings: Mapping[str, str]
    pipeline: Mapping[str, Any] | None = None
    """None where the reading was begun before pipelines were kept: then it is the location's."""

    def stored(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def begin(cls, session: SparkSession, location: ReceiveLocation, files: Sequence[FileClaim]) -> Reading:
        """How files are read that are begun now, together."""
        reader = rows_reader(location)
        conf = session._jsparkSession.sessionState().conf()
        cores = session.sparkContext.defaultParallelism
        share = sum(claim.size for claim in files) // (_SPLITS_PER_CORE * cores)
        split_bytes = max(1, min(conf.filesMaxPartitionBytes(), max(share, _SMALLEST_SPLIT)))
        return cls(
            format=reader.format,
            options=_reader_options(reader),
            schema=reader.columns,
            split_bytes=split_bytes,
            settings={
                **{name: value for name, value in session.conf.getAll.items() if name.startswith(_SHAPING)},
                **_settings(split_bytes),
            },
            pipeline=location.pipeline_json,
        )

    def received_at(self, location: ReceiveLocation) -> ReceiveLocation:
        """The location as it was when this was begun, as far as its rows are concerned."""
        return location if self.pipeline is None else replace(location, pipeline_json=dict(self.pipeline))


def rows_reader(location: ReceiveLocation) -> SparkReader:
    """Return the adapter of a location that reads rows."""
    assert isinstance(location.adapter, SparkReader)
    return location.adapter


def rows_pipeline(location: ReceiveLocation) -> Rows:
    """Return the pipeline of a location that reads rows."""
    assert isinstance(location.pipeline, Rows), "an application is checked before it is stored"
    return location.pipeline


def _settings(split_bytes: int) -> dict[str, str]:
    return {
        "spark.sql.files.maxPartitionBytes": str(split_bytes),
        "spark.sql.files.openCostInBytes": str(split_bytes),
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.maxPartitionNum": str(2**31 - 1),
        # What cannot be read must be told, not left out.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # A row is bad whichever of its columns are wanted.
        "spark.sql.csv.parser.columnPruning.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # A batch of rows is a chunk.
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(CHUNK_BYTES),
    }


def _reader_options(reader: SparkReader) -> dict[str, str]:
    options = option_texts(reader)
    if reader.marks_bad_rows:
        options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    given = {name.lower() for name in options}
    if reader.format == "csv" and "enforceschema" not in given:
        # The names in a header must be those of the schema: a column that is missing would shift all others.
        options["enforceSchema"] = "false"
    return options


def option_texts(reader: SparkReader) -> dict[str, str]:
    """The options as Spark takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in reader.options.items()
    }


def session_for(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of its own, on the same Spark, where these are the settings that shape rows."""
    from pyspark.sql import SparkSession

    # A clone knows the data sources that were registered; a new session would not.
    own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for name in own.conf.getAll:
        if name.startswith(_SHAPING) and name not in settings and own.conf.isModifiable(name):
            own.conf.unset(name)
    for name, value in settings.items():
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


def read_files(session: SparkSession, reading: Reading, pipeline: Rows, paths: Sequence[str]) -> DataFrame:
    """The rows of some files: the split that each is from, its body, its promoted values."""
    from pyspark.sql import functions as f

    reader = session.read.format(reading.format).options(**reading.options)
    # The paths are as they are, stars and brackets in them too.
    reader = reader.option("__globPaths__", "false")
    marks_bad_rows = "columnNameOfCorruptRecord" in reading.options
    if reading.schema is not None:
        reader = reader.schema(f"{reading.schema}, `{CORRUPT}` string" if marks_bad_rows else reading.schema)
    frame = reader.load(list(paths))
    return frame.select(
        f.substring(f.col("_metadata.file_name"), 1, _ID_LENGTH).alias(FILE),
        f.col("_metadata.file_block_start").alias(START),
        f.col("_metadata.file_block_length").alias(LENGTH),
        *row_columns(frame, pipeline),
    )


def row_columns(frame: DataFrame, pipeline: Rows) -> list[Column]:
    """What the pipeline wants to see of a row (see ``postroom.pipelines.rows.batch``)."""
    from pyspark.sql import functions as f

    names = [name for name in frame.columns if name != CORRUPT]
    row = f.struct(*(named(name) for name in names))
    if pipeline.column is not None:
        body = named(pipeline.column)
    elif pipeline.body == "csv":
        body = f.to_csv(row, _CSV_OPTIONS)
    else:
        body = f.to_json(row, _JSON_OPTIONS)
    columns = [body.cast("binary").alias(BODY)]
    columns += [named(path).alias(value_name(i)) for i, (_, path) in enumerate(pipeline.promotions.entries)]
    # As bytes: what could not be read need not be text.
    return [*columns, named(CORRUPT).cast("binary").alias(BAD)] if CORRUPT in frame.columns else columns


def named(name: str) -> Column:
    """A column by its name, whatever is in that."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")
