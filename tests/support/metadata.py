"""A log of metadata commands that reaches every branch, for the golden vectors and for comparing SQL with memory."""

from __future__ import annotations

from manager.cluster import commands as c

DISKS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 10)]
DATABASE = {"host": "127.0.0.1", "port": 5432, "name": "broker_1", "user": "reader"}
NOW = 1_700_000_000_000_000

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
]
