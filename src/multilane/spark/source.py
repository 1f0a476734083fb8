"""`format("multilane")`: Kafka as a table and as a stream, through Spark's interface for data sources in Python.

Thread: Spark's: planning in the driver's process (a batch) or in a process of the query's own (a stream), reading in
workers. Spark pickles what it sends between them, by import path.

A composition root: what is here wires options, planner and reader together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from multilane.errors import ConfigError
from multilane.spark.catalog_options import kept_in, options_in, table_options
from multilane.spark.offset_spec import Offsets, Tree, to_json
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
        refuse_shown_secrets(self.options)  # a plan is there before anything is read
        kept = table_options(self.options)
        if kept is None:
            return spark_schema(include_headers=includes_headers(self.options))
        refuse_shown_secrets(kept)
        return kept_in(spark_schema(include_headers=includes_headers(kept)), kept)

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
    """What one task reads."""

    ranges: tuple[Range, ...]


class _Reads:
    """What both readers do in a worker."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        chosen = self.options
        how = ReadOptions(chosen.properties, chosen.fail_on_data_loss, chosen.poll_seconds)
        for block in read_ranges(partition.ranges, how):
            yield spark_batch(block, include_headers=chosen.include_headers)

    def tasks(self, ranges: Sequence[Range]) -> list[Task]:
        chosen = self.options
        pieces = split(ranges, chosen.min_partitions) if chosen.min_partitions else ranges
        pieces = cut(pieces, chosen.max_records) if chosen.max_records else pieces
        return [Task(own) for own in grouped(pieces, chosen.max_tasks or max(1, len(pieces)))] or [Task(())]


class BatchReader(_Reads, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self.options)
        try:
            return self.tasks(planner.whole())
        finally:
            planner.close()


class StreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for the life of a query, in a process of its own; workers get a copy that has not planned anything."""

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
        return self._told(self._planner.begin())

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
        return self._told(self._planner.newest) or None

    def partitions(self, start: Tree, end: Tree) -> Sequence[InputPartition]:
        planner = self._planner
        return self.tasks(planner.ranges(planner.recall(start), planner.recall(end)))

    def _told(self, offsets: Offsets) -> dict[str, Any]:
        return to_json(offsets, self._planner.ids_of({partition.topic for partition in offsets}))

    def commit(self, end: Tree) -> None:
        """Spark calls this one batch late, and never for the last: the group hears of it when the next is planned."""

    def stop(self) -> None:
        if self._planned is not None:
            self._planned.close()
