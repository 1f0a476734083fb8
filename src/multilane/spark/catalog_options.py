"""The options of a table in Spark's catalog: `CREATE TABLE orders USING multilane OPTIONS (...)`.

Thread: none (pure).

Spark passes a table's options to a Python data source once, when the table is created without a column list and Spark
asks for the schema; they are mixed with the table's own properties. A query of the table gets the schema back, and no
options. So the options are stored in the schema, as metadata of its first column. Secrets are refused: every reader of
the catalog would see them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from multilane.errors import ConfigError

_STORED: Final = "multilane.options"
_PROVIDER: Final = "provider"  # a property that every table has
_OPTION: Final = "option."  # before each option of a table, among its properties
_SECRET: Final = re.compile(r"secret|password|token|access[.]?key|jaas", re.IGNORECASE)


def table_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of the table that Spark is creating; None if it is not creating one."""
    folded = {key.lower(): value for key, value in options.items()}
    if _PROVIDER not in folded:
        return None
    return {key.removeprefix(_OPTION): value for key, value in folded.items() if key.startswith(_OPTION)}


def with_stored(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema with these options stored in it."""
    secrets = sorted(filter(_SECRET.search, options))
    if secrets:
        raise ConfigError(
            f"{', '.join(secrets)}: Spark's catalog would store this secret in the clear. Use a temporary view "
            "(CREATE TEMPORARY VIEW orders USING multilane OPTIONS ...) or spark.read"
        )
    first, *rest = schema.fields
    return StructType([StructField(first.name, first.dataType, first.nullable, {_STORED: json.dumps(options)}), *rest])


def options_in(schema: StructType) -> dict[str, str]:
    """The options that `with_stored` put into the schema; none for other schemas."""
    stored = schema.fields[0].metadata.get(_STORED) if schema.fields else None
    return {} if stored is None else json.loads(stored)
