"""The read plan of claimed files: how a reader of Spark reads them, so that a restart gets the same rows and splits.

The splits of a file depend on settings, on the number of cores and on the other files of the job. The rows depend on
options and schema, and the messages on the pipeline, which names columns of the schema. All of these are stored with
the file claim before the first read, and used again after a restart, even if settings and definition have changed.

A split always has ``split_bytes``. The cost of opening a file is set to the size of a split, so that Spark neither
makes splits smaller for more cores nor puts two of them into one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from postroom.adapters import SparkReader
from postroom.adapters.spark_reader.definition import CORRUPT, Option
from postroom.agent.streaming.interchange import CHUNK_BYTES, CHUNK_ROWS
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.pipelines import Rows
from postroom.pipelines.rows.batch import BAD, BODY, NULLS, value_name
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.watched_folder import ID_LENGTH
from postroom.secrets.references import Secret

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The columns that identify the split of a row.
FILE, START, LENGTH = "file", "start", "length"

#: Enough splits that the tasks end together, but large enough to be worth a task.
_SPLITS_PER_CORE = 3
_SMALLEST_SPLIT = 4 << 20

#: The prefixes of the Spark settings that affect splits, rows or values.
_ROW_SETTINGS = (
    "spark.sql.files.",
    "spark.sql.sources.",
    "spark.sql.legacy.",
    "spark.sql.execution.arrow.",
    "spark.sql.csv.",
    "spark.sql.json.",
    "spark.sql.xml.",
    "spark.sql.parquet.",
    "spark.sql.orc.",
    "spark.sql.ansi.",
    "spark.sql.session.timeZone",
    "spark.sql.timestampType",
    "spark.sql.caseSensitive",
)

_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_CSV_OPTIONS = {"escape": '"', "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """Everything that determines the rows of a file and their messages."""

    format: str
    options: Mapping[str, Any]
    """The options as text. A secret is its stored reference."""
    schema: str | None
    split_bytes: int
    settings: Mapping[str, str]
    pipeline: Mapping[str, Any]

    def to_stored(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def create(cls, session: SparkSession, location: ReceiveLocation, files: Sequence[FileClaim]) -> ReadPlan:
        """Return the plan for files that are read together from now on."""
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
                **{name: value for name, value in session.conf.getAll.items() if name.startswith(_ROW_SETTINGS)},
                **_settings(split_bytes),
            },
            pipeline=location.definition["pipeline"],
        )

    def read_options(self) -> dict[str, str]:
        """Return the options for Spark, with the present values of secrets."""
        return {
            name: Secret(**value).read() if isinstance(value, dict) else value for name, value in self.options.items()
        }

    def apply_to(self, location: ReceiveLocation) -> ReceiveLocation:
        """Return the location with the pipeline of this plan."""
        return location.replace_settings(pipeline=dict(self.pipeline))


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
        # Unreadable files must be reported, not skipped.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # A row is bad if any column is bad, even one that is not selected.
        "spark.sql.csv.parser.columnPruning.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # A batch of rows is a chunk.
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(CHUNK_BYTES),
    }


def _reader_options(reader: SparkReader) -> dict[str, Any]:
    options = {name: _format_option(value) for name, value in reader.options.items()}
    if reader.marks_bad_rows:
        options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    given = {name.lower() for name in options}
    if reader.format == "csv" and "enforceschema" not in given:
        # The header must match the schema: a missing column would shift all others.
        options["enforceSchema"] = "false"
    return options


def _format_option(value: Option) -> Any:
    """Return an option as text for Spark, or a reference to a secret as it is stored."""
    if isinstance(value, Secret):
        return value.model_dump(mode="json")
    return str(value).lower() if isinstance(value, bool) else str(value)


def clone_session(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a new session of the same Spark with these settings for rows."""
    from pyspark.sql import SparkSession

    # A clone has the registered data sources, a new session would not.
    cloned = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for name in cloned.conf.getAll:
        if name.startswith(_ROW_SETTINGS) and name not in settings and cloned.conf.isModifiable(name):
            cloned.conf.unset(name)
    for name, value in settings.items():
        if cloned.conf.isModifiable(name):
            cloned.conf.set(name, value)
    return cloned


def read_files(session: SparkSession, plan: ReadPlan, pipeline: Rows, paths: Sequence[str]) -> DataFrame:
    """Return the rows of files: the split of each row, its body and its promoted values."""
    from pyspark.sql import functions as f

    reader = session.read.format(plan.format).options(**plan.read_options())
    # Stars and brackets in the paths are literal.
    reader = reader.option("__globPaths__", "false")
    marks_bad_rows = "columnNameOfCorruptRecord" in plan.options
    if plan.schema is not None:
        reader = reader.schema(f"{plan.schema}, `{CORRUPT}` string" if marks_bad_rows else plan.schema)
    frame = reader.load(list(paths))
    return frame.select(
        f.substring(f.col("_metadata.file_name"), 1, ID_LENGTH).alias(FILE),
        f.col("_metadata.file_block_start").alias(START),
        f.col("_metadata.file_block_length").alias(LENGTH),
        *row_columns(frame, pipeline),
    )


def row_columns(frame: DataFrame, pipeline: Rows) -> list[Column]:
    """Return the columns of a row that the pipeline needs (see ``postroom.pipelines.rows.batch``)."""
    from pyspark.sql import functions as f

    names = [name for name in frame.columns if name != CORRUPT]
    row = f.struct(*(quote_column(name) for name in names))
    if pipeline.column is not None:
        body = quote_column(pipeline.column)
    elif pipeline.body == "csv":
        body = f.to_csv(row, _CSV_OPTIONS)
    else:
        body = f.to_json(row, _JSON_OPTIONS)
    columns = [body.cast("binary").alias(BODY)]
    columns += [quote_column(path).alias(value_name(i)) for i, (_, path) in enumerate(pipeline.promotions.entries)]
    if CORRUPT not in frame.columns:
        return columns
    corrupt = quote_column(CORRUPT)
    nulls = f.array_compact(f.array(*(f.when(quote_column(name).isNull(), f.lit(name)) for name in names)))
    # As bytes, because an unreadable row may not be text.
    return [*columns, corrupt.cast("binary").alias(BAD), f.when(corrupt.isNotNull(), nulls).alias(NULLS)]


def quote_column(name: str) -> Column:
    """Return a column by name. The name may contain any character."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")
