"""Keeps a table of stock levels up to date, with one statement for each batch.

    KAFKA_BROKERS=localhost:9092 DATABASE_URL=postgresql://localhost/shop python app.py

SIGTERM or Ctrl-C ends it after the batches in flight.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from multilane import App

CONFIGURATION = Path(__file__).with_name("multilane.yaml")
# No two batches at the same time have an article in common, so none waits for a row of another. A level that comes
# again after a crash is not newer than the one in the table, and changes nothing.
UPSERT = """
    INSERT INTO stock (article, version, pieces)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (article) DO UPDATE SET version = excluded.version, pieces = excluded.pieces
    WHERE stock.version < excluded.version
"""

log = logging.getLogger("stock")


class Level(BaseModel):
    article: int
    version: int  # counts the changes of the article
    pieces: int


async def main() -> None:
    app = App(CONFIGURATION)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, app.stop)

    async with AsyncConnectionPool(os.environ["DATABASE_URL"], min_size=2, max_size=8, timeout=10) as pool:

        @app.listener("stock")
        async def store(levels: list[Level]) -> None:
            columns = list(zip(*((level.article, level.version, level.pieces) for level in levels), strict=True))
            async with pool.connection() as connection:
                done = await connection.execute(UPSERT, [list(column) for column in columns])
            log.info("stored %d levels; %d were stored before", done.rowcount, len(levels) - done.rowcount)

        await app.serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(main())
