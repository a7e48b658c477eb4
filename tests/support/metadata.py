"""A log of metadata commands that reaches every branch, for the golden vectors and for comparing SQL with memory."""

from __future__ import annotations

from manager.cluster import commands as c

DISKS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 10)]
DATABASE = {"host": "127.0.0.1", "port": 5432, "name": "broker_1", "user": "reader"}
NOW = 1_700_000_000_000_000

EXTRA_DISKS = [f"00000000-0000-4000-8000-0000000000{number}" for number in range(10, 14)]
SPREAD = 5  # the id of the topic "spread"
THREE = {"1": DISKS[4], "4": EXTRA_DISKS[0], "5": EXTRA_DISKS[3]}

LOG: list[c.Command] = [
    c.InitCluster("6c6f6700-0000-4000-8000-000000000001", tuple(c.Member(n, f"http://127.0.0.1:{7000 + n}", DISKS[n]) for n in (1, 2, 3))),
    c.Noop(),
    c.CreateTopic("too-early", created_at=NOW, live_brokers=()),
    c.AddBroker(DISKS[4], "127.0.0.1", 8001, DATABASE),
    c.AddBroker(DISKS[5], "127.0.0.1", 8002, {**DATABASE, "name": "broker_2"}),
    c.AddBroker(DISKS[4], "127.0.0.1", 8101, DATABASE),
    c.CreateTopic("logs", partitions=3, config={"retention_ms": 60_000}, created_at=NOW, live_brokers=(1, 2)),
    c.CreateTopic("logs", created_at=NOW + 1, live_brokers=(1, 2)),
    c.CreateTopic("no good", created_at=NOW, live_brokers=(1, 2)),
    c.CreateTopic("replicated", replication_factor=3, created_at=NOW, live_brokers=(1, 2)),
    c.CreateTopic("none", partitions=0, created_at=NOW, live_brokers=(1, 2)),
    c.RegisterProducers(("logs", "new", "logs", "newer"), created_at=NOW + 2, live_brokers=(2,)),
    c.RegisterProducers(("absent",), create=False, created_at=NOW + 3),
    c.RegisterConsumers(("logs", "absent", "missing"), created_at=NOW + 4),
    c.RegisterConsumers(("logs", "new"), start="latest", created_at=NOW + 5),
    c.RegisterConsumers(("logs",), start="middle", created_at=NOW + 6),
    c.AddPartition("logs", live_brokers=(1, 2)),
    c.AddPartition("absent", live_brokers=(1, 2)),
    c.RemoveBroker(1),
    c.RemoveBroker(9),
    c.AddBroker(DISKS[6], "::1", 8003, DATABASE),
    c.RemoveBroker(3),
    c.DeleteTopic("new"),
    c.DeleteTopic("new"),
    c.CreateTopic("new", created_at=NOW + 7, live_brokers=(1, 3)),
    c.InitCluster("again", ()),
    c.SetMember(4, "http://127.0.0.1:7004", DISKS[7], voter=False),
    c.SetMember(4, "http://127.0.0.1:7104", DISKS[8], voter=True),
    c.RemoveMember(2),
    c.RemoveMember(9),
    # replicated partitions
    c.AddBroker(EXTRA_DISKS[0], "127.0.0.1", 8004, {**DATABASE, "name": "broker_4"}),
    c.AddBroker(EXTRA_DISKS[3], "127.0.0.1", 8005, {**DATABASE, "name": "broker_5"}),
    c.CreateReplicatedTopic("spread", partitions=2, created_at=NOW + 8, live_brokers=(1, 4, 5)),
    c.CreateReplicatedTopic("pair", replication_factor=2, created_at=NOW + 9, live_brokers=(1, 4, 5)),
    c.CreateReplicatedTopic("five", replication_factor=5, created_at=NOW + 10, live_brokers=(1, 4, 5)),
    c.CreateReplicatedTopic("none", replication_factor=0, created_at=NOW + 11, live_brokers=(1, 4, 5)),
    c.RegisterProducers(("made",), created_at=NOW + 12, live_brokers=(1, 4), replicate=True),
    c.BeginElections((c.BeginElection(SPREAD, 0, 1, THREE), c.BeginElection(SPREAD, 1, 2, THREE), c.BeginElection(99, 0, 1, THREE))),
    c.AppointLeaders((c.AppointLeader(SPREAD, 0, 2, 5), c.AppointLeader(SPREAD, 0, 2, 4), c.AppointLeader(SPREAD, 1, 1, 1))),
    c.ReplaceDisk(4, EXTRA_DISKS[0], EXTRA_DISKS[1], "127.0.0.1", 8104, DATABASE),
    c.ReplaceDisk(4, EXTRA_DISKS[0], EXTRA_DISKS[2], "127.0.0.1", 8104, DATABASE),
    c.BeginElections((c.BeginElection(SPREAD, 0, 2, {**THREE, "4": EXTRA_DISKS[1]}),)),
    c.BeginElections((c.BeginElection(SPREAD, 0, 2, {**THREE, "4": None}),)),
    c.AppointLeaders((c.AppointLeader(SPREAD, 0, 3, 1),)),
    c.SetLearners((c.Learners(SPREAD, 0, 3, (4,)), c.Learners(SPREAD, 1, 1, (1,)))),
    c.BeginElections((c.BeginElection(SPREAD, 0, 3, {**THREE, "4": EXTRA_DISKS[1]}),)),
    c.ForceElections((c.BeginElection(SPREAD, 1, 1, {"5": EXTRA_DISKS[3]}), c.BeginElection(SPREAD, 0, 4, {}))),
    c.DrainBroker(4),
    c.AddBroker(EXTRA_DISKS[1], "127.0.0.1", 8204, DATABASE),
    c.RemoveBroker(4),
    c.DrainBroker(4, draining=False),
    c.DrainBroker(9),
    c.DeleteTopic("pair"),
    c.DiskLost(3, DISKS[4]),
    c.DiskLost(3, DISKS[3]),
    c.DiskLost(9, DISKS[3]),
    # a topic's config
    c.AlterTopic("logs", 1, {"retention_bytes": 1_048_576}),
    c.AlterTopic("logs", 1, {"retention_ms": None, "retention_bytes": 2_097_152}),
    c.AlterTopic("logs", 99, {"retention_ms": 5}),
    c.AlterTopic("pair", 1, {"retention_ms": 5}),
]
