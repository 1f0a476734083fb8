"""`format("multilane")`: Kafka as a table and as a stream, through Spark's Python data source API.

Thread: Spark's. A batch is planned in the driver process, a stream in a process of its own; workers read. Spark pickles
readers and tasks by import path.

A composition root: wires options, planner and reader together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from multilane.errors import ConfigError
from multilane.spark.catalog_options import options_in, table_options, with_stored
from multilane.spark.offset_spec import TopicOffsets, Tree, to_json
from multilane.spark.options import (
    SourceOptions,
    includes_headers,
    refuse_shown_secrets,
    sink_options,
    source_options,
)
from multilane.spark.planning import Planner, StreamPlanner
from multilane.spark.ranges import Range, cut, grouped, split
from multilane.spark.reading import ReadOptions, read_ranges
from multilane.spark.rows import spark_batch, spark_schema
from multilane.spark.sink import BatchWriter, StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "multilane"

    def schema(self) -> StructType:
        refuse_shown_secrets(self.options)  # Spark makes a plan before anything is read
        table = table_options(self.options)
        if table is None:
            return spark_schema(include_headers=includes_headers(self.options))
        refuse_shown_secrets(table)
        return with_stored(spark_schema(include_headers=includes_headers(table)), table)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(source_options(options_in(schema) | dict(self.options), is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(source_options(options_in(schema) | dict(self.options), is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ConfigError(
                'a Kafka topic cannot be overwritten, neither by mode("overwrite") nor by INSERT OVERWRITE. '
                'Use mode("append"), or multilane.spark.write(df, ...)'
            )
        return BatchWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(sink_options(self.options), schema)


@dataclass
class Task(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]


class _Reads:
    """The worker's side of both readers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        options = self.options
        how = ReadOptions(options.properties, options.fail_on_data_loss, options.poll_seconds)
        for block in read_ranges(partition.ranges, how):
            yield spark_batch(block, include_headers=options.include_headers)

    def tasks(self, ranges: Sequence[Range]) -> list[Task]:
        options = self.options
        parts = split(ranges, options.min_partitions) if options.min_partitions else ranges
        parts = cut(parts, options.max_records) if options.max_records else parts
        return [Task(own) for own in grouped(parts, options.max_tasks or max(1, len(parts)))] or [Task(())]


class BatchReader(_Reads, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self.options)
        try:
            return self.tasks(planner.whole())
        finally:
            planner.close()


class StreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as its query, in a process of its own; workers get a copy without a planner."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._planned: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_planned": None}

    @property
    def _planner(self) -> StreamPlanner:
        if self._planned is None:
            self._planned = StreamPlanner(self.options)
        return self._planned

    def initialOffset(self) -> dict[str, Any]:
        return self._as_json(self._planner.begin())

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Tree, limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        planner = self._planner
        offsets = planner.latest(planner.recall(start), most)
        return to_json(offsets, planner.ids_of({p.topic for p in offsets}), planner.epochs_of(offsets))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._as_json(self._planner.newest) or None

    def partitions(self, start: Tree, end: Tree) -> Sequence[InputPartition]:
        planner = self._planner
        return self.tasks(planner.ranges(planner.recall(start), planner.recall(end)))

    def _as_json(self, offsets: TopicOffsets) -> dict[str, Any]:
        return to_json(offsets, self._planner.ids_of({partition.topic for partition in offsets}))

    def commit(self, end: Tree) -> None:
        """Does nothing. Spark calls it one batch late and never for the last batch, so the planner commits for the
        group when it plans the next batch."""

    def stop(self) -> None:
        if self._planned is not None:
            self._planned.close()
