"""The composition root of a manager's worker process: opens the connections and puts the parts together."""

from __future__ import annotations

import os

from flask import Flask

from db.engine import check_durable, make_engine
from db.member_requests import MemberRequestStore
from db.metadata_store import HeartbeatStore, MetadataStore
from db.migrate import migrate
from db.wal_store import DriverLock, WalStore
from manager.api import groups as groups_face
from manager.api import internal, native, partition, queue
from manager.api.hooks import Gate
from manager.app import create_app
from manager.appointer import Appointer
from manager.batches import Batches
from manager.brokers import Brokers
from manager.cluster_view import ClusterView, database_of
from manager.coordinator import Coordinator
from manager.elections import Elections
from manager.group_keeper import GroupKeeper
from manager.groups import Groups
from manager.growth import Growth
from manager.heartbeats import HeartbeatBook, Liveness
from manager.leaderships import Leaderships
from manager.lives import Lives
from manager.looks import Looks
from manager.members import Members
from manager.node import signals as sig
from manager.node.compaction import Compaction
from manager.node.driver import Driver
from manager.node.founder import Founder
from manager.node.lanes import Lanes
from manager.node.mailbox import Mailbox
from manager.node.role import Role
from manager.node.signals import Signals
from manager.node.snapshots import offer_of
from manager.node.transport import Peers
from manager.node.wal import Wal
from manager.proposer import Proposer
from manager.records import Records
from manager.recovery import Recovery
from manager.repairs import Repairs
from manager.replica import Replica
from manager.search import Search
from manager.service import ManagerService
from manager.settings import ManagerSettings
from manager.spawner import Spawner
from manager.status import Status
from manager.watch import BrokerWatch
from myqueue.client.transport import RequestsTransport
from myqueue.service.auth import Guard, read_secret
from myqueue.service.faults import make_clock
from myqueue.service.lifecycle import Lifecycle
from myqueue.service.wakeups import Wakeups

RESERVED_THREADS = 8  # of a worker's request threads, for the calls between nodes
LAST_REQUESTS_SECONDS = (0.3, 3.0)  # least and most wait before the process ends; with the hand-over within gunicorn's bound


def create(settings: ManagerSettings, wakeups: Wakeups, role: Role) -> Flask:
    """The app of one worker. Brings the database up to date and takes it for this node.

    Raises:
        ConfigurationError: the database is not durable, newer than this program, or another node's.
    """
    clock, lifecycle = make_clock(os.environ), Lifecycle()
    engine = make_engine(settings.database_url, application_name=settings.node, pool_size=settings.pool_size)
    driver_engine = make_engine(settings.database_url, application_name=f"{settings.node} driver", pool_size=1)
    migrate(engine, "manager")
    connection = engine.raw_connection()
    try:
        check_durable(connection)
    finally:
        connection.close()
    store = WalStore(engine)
    store.claim(settings.node_id)

    urls = settings.urls
    secret = read_secret(settings.secret_file) if settings.secret_file else None
    to_managers = RequestsTransport(token=settings.token, secret=secret)
    to_brokers = RequestsTransport(secret=secret)  # no token: a caller names the address that is asked who it is
    peers = Peers(to_managers, urls, timeout_seconds=settings.peer_timeout_seconds)
    brokers = Brokers(to_brokers, timeout_seconds=settings.broker_timeout_seconds)
    signals = Signals(wakeups, lifecycle.stopping)
    wal = Wal(store, role, signals, clock, election_timeout_seconds=settings.election_timeout_seconds, snapshot_entries=settings.snapshot_entries)
    compaction = Compaction(store, clock, snapshot_entries=settings.snapshot_entries)
    database = database_of(settings.database_url, settings.reader_user)

    replica = Replica(MetadataStore(engine), role=role, peers=peers, signals=signals, clock=clock, wait_seconds=settings.read_wait_seconds)
    heartbeats = HeartbeatStore(engine)
    lives = Lives(wal)
    book = HeartbeatBook(heartbeats, role=role, peers=peers, lives=lives, clock=clock)
    liveness = Liveness(heartbeats, replica=replica, role=role, thresholds=settings.thresholds, clock=clock)
    watch = BrokerWatch(states=liveness.broker_states, brokers=brokers, clock=clock, lost_after_seconds=settings.recreate_after_seconds)
    proposer = Proposer(wal=wal, role=role, replica=replica, peers=peers, signals=signals, clock=clock,
                        live_brokers=liveness.live_brokers, heard_brokers=liveness.heard_brokers,
                        absent_brokers=lambda asked: watch.absent(replica.catalogue(), asked),
                        late_brokers=lambda: watch.late(replica.catalogue()),
                        timeout_seconds=settings.propose_timeout_seconds)
    records = Records(replica=replica, brokers=brokers, book=book, clock=clock, signals=signals)
    groups = Groups(propose=proposer.propose, replica=replica, records=records, book=book)
    keeper = GroupKeeper(propose=proposer.propose, groups=groups, replica=replica, store=heartbeats, clock=clock)
    appointer = Appointer(replica=replica, brokers=brokers, signals=signals)
    elections = Elections(propose=proposer.propose, replica=replica, brokers=brokers, appointer=appointer, clock=clock)
    coordinator = Coordinator(propose=proposer.propose, elections=elections, replica=replica, brokers=brokers, appointer=appointer, watch=watch,
                              clock=clock, inventory_seconds=settings.inventory_seconds)
    service = ManagerService(proposer=proposer, replica=replica, records=records, brokers=brokers, appointer=appointer, book=book,
                             liveness=liveness, peers=peers, role=role, clock=clock, pause=lifecycle.stopping.wait,
                             appoint_timeout_seconds=settings.appoint_timeout_seconds, propose_timeout_seconds=settings.propose_timeout_seconds,
                             drain_wait_seconds=settings.drain_wait_seconds)
    growth = Growth(propose=proposer.propose, replica=replica, records=records, brokers=brokers)
    spawner = Spawner(settings.cluster_data)
    gate = Gate(settings.threads - RESERVED_THREADS)
    recovery = Recovery(propose=proposer.propose, replica=replica, brokers=brokers, outlook=liveness.outlook)
    view = ClusterView(replica=replica, liveness=liveness, role=role, peers=peers, urls=urls, database=database, clock=clock)
    status = Status(store=store, role=role, clock=clock, urls=urls, database=database, ready_lag_seconds=settings.ready_lag_seconds,
                    is_leaving=lambda: gate.is_shut)

    others = set(urls) - {settings.node_id}
    lanes = Lanes(peers, answered=lambda: signals.give(sig.DRIVE), run=lifecycle.thread, offer=lambda order: offer_of(store, order),
                  small_timeout_seconds=settings.election_timeout_seconds, large_timeout_seconds=settings.peer_timeout_seconds)
    mailbox = Mailbox(MemberRequestStore(engine), signals, clock)
    members = Members(mailbox=mailbox, replica=replica, peers=peers, role=role, clock=clock, timeout_seconds=settings.propose_timeout_seconds,
                      identity_at=Peers(to_brokers, {}, timeout_seconds=settings.peer_timeout_seconds).identity_at)
    founder = Founder(wal, peers, node_id=settings.node_id, managers=tuple(urls))
    driver = Driver(wal=wal, role=role, peers=peers, lanes=lanes, founder=founder, mailbox=mailbox, lock=DriverLock(driver_engine),
                    compaction=compaction, signals=signals, clock=clock, alone=not others, heartbeat_seconds=settings.raft_heartbeat_seconds,
                    election_timeout_seconds=settings.election_timeout_seconds,
                    on_events=appointer.on_events, on_leading=appointer.begin)
    _run_beside(lifecycle, driver, compaction, appointer, coordinator, keeper, growth, lives, settings=settings, book=book, liveness=liveness,
                view=view)
    lifecycle.before_stop("hand-over", lambda: driver.leave(2 * settings.election_timeout_seconds))
    lifecycle.before_stop("last requests", lambda: gate.shut(least_seconds=LAST_REQUESTS_SECONDS[0], most_seconds=LAST_REQUESTS_SECONDS[1]))
    for close in (driver_engine.dispose, engine.dispose, to_managers.close, to_brokers.close, brokers.close, watch.close):
        lifecycle.on_stop(close)

    blueprints = [queue.make_blueprint(service, records, replica, gate),
                  partition.make_blueprint(service, records, replica, gate, status.raft, spawner.spawn),
                  native.make_blueprint(service, replica, view, book, members, gate, recovery,
                                        Batches(replica=replica, brokers=brokers, records=records), records,
                                        Search(replica=replica, brokers=brokers, records=records, clock=clock),
                                        Leaderships(elections=elections, replica=replica, brokers=brokers, outlook=liveness.outlook),
                                        Repairs(elections=elections, replica=replica, brokers=brokers, outlook=liveness.outlook), spawner.spawn),
                  groups_face.make_blueprint(groups, replica, gate),
                  internal.make_blueprint(identity=status.identity, wal=wal, proposer=proposer, service=service,
                                          replica=replica, book=book, liveness=liveness, lives=lives)]
    return create_app(settings.node, blueprints, lifecycle=lifecycle, ready=status.ready,
                      guard=Guard(clock, token=settings.token, secret=secret),
                      look=Looks(replica=replica, liveness=liveness, role=role, groups=groups, clock=clock))


def _run_beside(lifecycle: Lifecycle, driver: Driver, compaction: Compaction, appointer: Appointer, coordinator: Coordinator, keeper: GroupKeeper,
                growth: Growth, lives: Lives, *, settings: ManagerSettings, book: HeartbeatBook, liveness: Liveness, view: ClusterView) -> None:
    """The background threads of a worker. What only the driver's process does watches ``driver.driving`` or ``driver.leading``."""

    def beat() -> None:
        lives.turn()
        if driver.driving.is_set():
            book.heard("manager", settings.node_id)
        book.flush()

    def check() -> None:
        if driver.leading.is_set():
            liveness.check()

    def grow() -> None:
        if driver.leading.is_set():
            growth.turn()

    lifecycle.thread("driver", driver.run)
    lifecycle.thread("compaction", compaction.run)
    lifecycle.every("heartbeats", settings.heartbeat_interval_seconds, beat)
    lifecycle.every("cluster-view", view.REFRESH_SECONDS, view.refresh)
    lifecycle.thread("appointer", lambda stopping: appointer.run(driver.leading, stopping))
    lifecycle.thread("coordinator", lambda stopping: coordinator.run(driver.leading, stopping))
    lifecycle.thread("groups", lambda stopping: keeper.run(driver.leading, stopping))
    lifecycle.every("growth", settings.growth_check_seconds, grow)
    lifecycle.every("liveness", settings.heartbeat_interval_seconds, check)
