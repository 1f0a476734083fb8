"""Runs app.py between a Kafka and a PostgreSQL on this machine, kills it on the way, and checks every row.

    python examples/postgres/main.py

Stops and deletes what it has started, also after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import LiteralString

import psycopg

from database import postgres
from multilane import Admin, MultilaneError, Producer
from multilane.dev import KafkaCluster
from processes import running, wait_until

APP = Path(__file__).with_name("app.py")
TOPICS = {"stock": 4, "stock.retry": 4, "stock.error": 1}
ARTICLES, VERSIONS = 1_000, 20
TABLE = "CREATE TABLE stock (article bigint PRIMARY KEY, version bigint NOT NULL, pieces bigint NOT NULL)"
# How soon the partitions of an app that was killed go to the next one: 45 s by default.
SHORT_SESSION = {"group.consumer.session.timeout.ms": "5000", "group.consumer.heartbeat.interval.ms": "1000"}


def pieces(article: int, version: int) -> int:
    return (article * 31 + version * 17) % 100


def send(brokers: str, versions: range) -> None:
    """Sends these versions of the levels of all articles."""
    levels = (
        {"article": article, "version": version, "pieces": pieces(article, version)}
        for version in versions
        for article in range(ARTICLES)
    )
    with Producer({"bootstrap.servers": brokers}) as producer:
        producer.send_many(
            ("stock", json.dumps(level).encode(), b"article %d" % level["article"]) for level in levels
        ).result()


def run(brokers: str, url: str, log: Path) -> list[tuple[int, ...]]:
    """Runs the app twice, with a kill between; returns the rows of the table."""
    command, environ = [sys.executable, str(APP)], os.environ | {"KAFKA_BROKERS": brokers, "DATABASE_URL": url}
    with psycopg.connect(url, autocommit=True) as database, psycopg.connect(url) as other:
        database.execute(TABLE)

        def count(query: LiteralString) -> int:
            [(found,)] = database.execute(query)
            return int(found)

        send(brokers, range(1, VERSIONS // 2))
        # Another transaction has the same article: the app cannot get past its batch before that one ends.
        other.execute("INSERT INTO stock VALUES (500, 0, 0)")
        with running(command, log, env=environ) as app:
            wait_until(lambda: count("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0, app, log)
            app.kill()
        other.rollback()
        stored = count("SELECT count(*) FROM stock")
        print(f"killed the app within a batch: the table has {stored} of {ARTICLES} articles")

        send(brokers, range(VERSIONS // 2, VERSIONS + 1))
        with running(command, log, env=environ) as app:
            wait_until(lambda: count("SELECT coalesce(sum(version), 0) FROM stock") == ARTICLES * VERSIONS, app, log)
        return database.execute("SELECT article, version, pieces FROM stock ORDER BY article").fetchall()


def main() -> int:
    with (
        TemporaryDirectory(prefix="multilane-postgres-") as folder,
        KafkaCluster(properties=SHORT_SESSION) as kafka,
        postgres(Path(folder)) as url,
    ):
        log = Path(folder, "app.log")
        with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
            admin.create_topics(TOPICS)
        found = run(kafka.bootstrap(), url, log)
        again = sum(int(count) for count in re.findall(r"; (\d+) were stored before", log.read_text()))
    print(f"started again: {again} levels came that were stored before, and changed nothing")
    wanted = [(article, VERSIONS, pieces(article, VERSIONS)) for article in range(ARTICLES)]
    if found != wanted:
        right = len(set(wanted).intersection(found))
        print(f"failed: the table has {len(found)} rows, of which {right} are what was sent", file=sys.stderr)
        return 1
    print(f"ok: the table has {len(found)} articles, each once and with its newest level")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop what was started
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
    except MultilaneError as error:
        sys.exit(f"failed: {error}")
