"""Puts a worker of the broker together: the one place where its parts are made."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import psycopg2
import sqlalchemy
from flask import Flask

from db.broker_identity import BrokerIdentity
from db.engine import check_durable, make_engine, parse_url
from db.migrate import migrate
from db.postgres_log import PostgresLogStore
from db.segments import RollPolicy
from myqueue.client.transport import RequestsTransport
from myqueue.clock import Clock
from myqueue.errors import OutcomeUnknownError, UnavailableError
from myqueue.protocol import routes
from myqueue.service import logs
from myqueue.service.auth import Guard, read_secret
from myqueue.service.faults import fault_point, is_armed, is_due, make_clock
from myqueue.service.lifecycle import Lifecycle
from myqueue.service.wakeups import Wakeups

from .app import create_app
from .buckets import Buckets
from .directory import Directory, describe_by
from .expiry import Expiry
from .follower import Follower
from .heartbeat import Heartbeat
from .identity import Identity
from .looks import Looks
from .managers import Managers
from .peers import Peers
from .quotas import Quotas
from .replicator import Replicator
from .retention import Retention
from .service import TOPICS_KEY, BrokerService
from .settings import BrokerSettings

_log = logging.getLogger(__name__)
FOLLOWED_MAX = 3  # appends of leaders that are stored at the same time
DATABASE_WAIT_SECONDS = 20.0  # a worker that is replaced while the server restarts


def create(settings: BrokerSettings, wakeups: Wakeups, buckets: Buckets) -> Flask:
    """An app whose background threads start with its lifecycle. The database is brought up to date first."""
    clock, lifecycle = make_clock(os.environ), Lifecycle()
    secret = read_secret(settings.secret_file) if settings.secret_file else None
    sizes = {"writer": settings.writers + settings.replicators + FOLLOWED_MAX + 1, "reader": settings.readers, "keeper": 1}
    writer, reader, keeper = (_engine(settings, part, size) for part, size in sizes.items())
    _prepare(writer, clock, lifecycle.stopping)
    if is_armed("append_before_disk"):
        for engine in (writer, reader, keeper):  # a commit on disk takes all earlier ones with it
            _commit_before_disk(engine)
    transport = RequestsTransport(token=settings.token, secret=secret)
    managers = Managers(settings.managers, transport)
    store = PostgresLogStore(writer, reader, on_event=_fault_points, remembers=settings.workers == 1)
    url = parse_url(settings.database_url)
    database = {"host": url.host or "127.0.0.1", "port": url.port or 5432, "name": url.database, "user": settings.reader_user}
    identity = Identity(store, database)
    peers = Peers(transport, lambda: managers.get(routes.CLUSTER), clock)
    replicator = Replicator(store, peers, wakeups, clock, identity=identity.pair, introduce=lambda topic_id: _introduction(store, topic_id),
                            kept_seconds=settings.follower_kept_seconds)
    follower = Follower(store, wakeups, disk_id=lambda: identity.who().disk_id, stop_leading=replicator.stop_leading)
    service = BrokerService(store, wakeups, replicator, who=identity.who, clock=clock, stopping=lifecycle.stopping,
                            queue_bytes_max=settings.queue_bytes_max, long_polls_max=settings.long_polls_max,
                            timeout_seconds=settings.append_timeout_seconds, take=Quotas(store, wakeups, buckets).take)
    directory = Directory(store, wakeups, describe_by(managers.get))
    host, port = settings.address
    heartbeat = Heartbeat(keeper, managers, {"host": host, "port": port, "database": database},
                          interval_seconds=settings.heartbeat_interval_seconds, on_registered=lambda known: _rename(known, settings))
    policy, retention = RollPolicy(settings.segment_bytes_max, settings.segment_age_seconds_max), Retention(store, replicator)
    expiry = Expiry(store, clock, configs=lambda: _configs(managers), trim=service.trim,
                    on_configs=lambda: wakeups.wake(TOPICS_KEY))
    for close in (writer.dispose, reader.dispose, keeper.dispose, transport.close, buckets.close):
        lifecycle.on_stop(close)
    for number in range(settings.writers):
        lifecycle.thread(f"writer-{number + 1}", service.writer.run)
    for number in range(settings.replicators):
        lifecycle.thread(f"replicator-{number + 1}", replicator.run)
    lifecycle.thread("heartbeat", heartbeat.run)
    lifecycle.every("replicas", settings.replica_check_seconds, replicator.look_around)
    lifecycle.every("segments", settings.segment_check_seconds, lambda: _look_at_segments(store, policy, retention))
    lifecycle.every("expiry", settings.expiry_check_seconds, expiry.look)
    node = _rename(identity.load(), settings)
    return create_app(node, service, store, directory, identity, managers, follower, lifecycle, Guard(clock, token=settings.token, secret=secret),
                      Looks(store, replicator))


def _look_at_segments(store: PostgresLogStore, policy: RollPolicy, retention: Retention) -> None:
    store.maintain_segments(policy)
    retention.look()


def _configs(managers: Managers) -> dict[int, dict[str, Any]]:
    """Every topic's config, none of them older than this call. Raises UnavailableError."""
    answer = managers.get(f"{routes.TOPICS}?fresh=true")
    try:
        return {topic["topic_id"]: dict(topic["config"]) for topic in answer["topics"]}
    except (LookupError, TypeError, ValueError) as error:
        raise UnavailableError("a manager's list of topics cannot be understood", component="managers") from error


def _introduction(store: PostgresLogStore, topic_id: int) -> dict[str, Any]:
    """What a replica is told that does not have the topic yet. Raises UnavailableError where the topic was dropped here meanwhile."""
    found = store.topic(topic_id)
    if found is None:
        raise UnavailableError(f"topic {topic_id} is not held here any more")
    return {"topic": found[0], "config": found[1]}


def _engine(settings: BrokerSettings, part: str, size: int) -> sqlalchemy.Engine:
    return make_engine(settings.database_url, application_name=f"myqueue-broker-{part}", pool_size=size,
                       statement_timeout_seconds=settings.statement_timeout_seconds)


def _prepare(engine: sqlalchemy.Engine, clock: Clock, stopping: threading.Event) -> None:
    """Migrations, and the refusal of a database that would acknowledge before the disk has it.

    Raises:
        UnavailableError: the database did not answer in all the time that one may need to come back.
        ConfigurationError: it cannot be used.
    """
    connection = _connect(engine, clock.monotonic() + DATABASE_WAIT_SECONDS, clock, stopping)
    try:
        check_durable(connection.driver_connection)
    finally:
        connection.close()
    applied = migrate(engine, "broker")
    if applied:
        _log.info("migrations applied: %s", applied)


def _connect(engine: sqlalchemy.Engine, deadline: float, clock: Clock, stopping: threading.Event) -> Any:
    while True:
        try:
            return engine.raw_connection()
        except (psycopg2.OperationalError, sqlalchemy.exc.OperationalError) as error:
            if clock.monotonic() >= deadline or stopping.is_set():
                raise UnavailableError(f"the database cannot be reached: {str(error).splitlines()[0][:200]}") from error
        stopping.wait(0.5)


def _rename(known: BrokerIdentity, settings: BrokerSettings) -> str:
    """The node's name, from now on also in the logs."""
    node = "broker" if known.broker_id is None else f"broker-{known.broker_id}"
    logs.configure(node, settings.log_level)
    return node


def _fault_points(event: str) -> None:
    fault_point(f"append_{event}")
    if event == "after_commit" and is_due("append_commit_reply_lost"):
        raise OutcomeUnknownError("fault point append_commit_reply_lost")


def _commit_before_disk(engine: sqlalchemy.Engine) -> None:
    """Fault point append_before_disk: from now on a commit of this pool returns before the disk has it."""
    engine.dispose()

    @sqlalchemy.event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
        connection.commit()
