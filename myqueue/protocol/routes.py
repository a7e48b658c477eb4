"""Paths, headers and roles, said once for SDK, services and balancer."""

from __future__ import annotations

# --- headers ---
REQUEST_ID = "MyQueue-Request-Id"
FORWARDED = "MyQueue-Forwarded"  # "1" on a call that a manager passed on: it is never passed on twice
PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ = "Producer-Id", "Producer-Epoch", "Producer-Seq"
OFFSET = "MyQueue-Offset"  # of a read's answer: the offset that was meant by "earliest", "latest" or a time
START_OFFSET, END_OFFSET, EPOCH = "MyQueue-Start-Offset", "MyQueue-End-Offset", "MyQueue-Epoch"  # of a read's answer
NODE = "MyQueue-Node"  # which node answered, e.g. manager-2
APPLIED_INDEX, FRESHNESS = "MyQueue-Applied-Index", "MyQueue-Freshness-Seconds"  # of a manager's answer; of a write: where it is done
MIN_INDEX = "MyQueue-Min-Index"  # asks a manager to answer as of this index or later, or with 503
PREFER_INDEX = "MyQueue-Prefer-Index"  # asks a manager to wait for this index if it is not cut off, and to answer in any case
NOT_TAKEN = "MyQueue-Not-Taken"  # "1" on a 503 of a node that is about to end: nothing was done, another node may be asked at once

# --- every process ---
LIVEZ, READYZ, METRICS = "/livez", "/readyz", "/metrics"
OPENAPI, DOCS = "/openapi.json", "/docs"  # what the native face is, for programs and for people
OF_EVERY_PROCESS = frozenset({LIVEZ, READYZ, METRICS, OPENAPI, DOCS})  # a balancer answers them itself
FREE = frozenset({LIVEZ, OPENAPI, DOCS})  # they tell nothing of the cluster and ask for no token

# --- partition face, as far as our own programs use it ---
RAFT_STATUS = "/raft_status"  # GET, on a manager

# --- native face: managers and balancer ---
CLUSTER = "/v1/cluster"  # GET ?topic=… : the routing snapshot
HEALTH = "/v1/health"  # GET: heartbeats and liveness of every actor
TOPICS = "/v1/topics"  # GET list, POST create
TOPIC = "/v1/topics/{topic}"  # GET describe, PATCH {config: {field: value | null}}, DELETE
PARTITIONS = "/v1/topics/{topic}/partitions"  # GET list, POST {partitions: how many there are to be in all}
TOPIC_RECORDS = "/v1/topics/{topic}/records"  # POST records, each to its partition: the one it names, its key's, or the one whose turn it is
LAG = "/v1/topics/{topic}/lag"  # GET ?consumer_id=N: how far a consumer is, by partition
SEARCH = "/v1/topics/{topic}/search"  # GET ?key=…|key_base64=…&from_timestamp=µs&to_timestamp=µs&max_records=N&cursor=…
ELECT = "/v1/topics/{topic}/partitions/{partition}/elect"  # POST [{broker_id}]: let another replica lead
REPAIR = "/v1/topics/{topic}/partitions/{partition}/repair"  # POST {broker_id}: let a broker get its replica anew from the others
MOVE = "/v1/topics/{topic}/partitions/{partition}/move"  # POST {brokers: [id, …] | null}: where its replicas are to be; null stops a move
RECOVERY = "/v1/topics/{topic}/recovery"  # GET what lost its majority and would be lost, POST {accept_loss: true, [partitions]}
BROKERS = "/v1/brokers"  # GET the brokers, POST {host, port} register one, POST {} start one
BROKER = "/v1/brokers/{broker_id}"  # DELETE: drain and remove
DRAIN = "/v1/brokers/{broker_id}/drain"  # POST {draining: true | false}
PRODUCERS = "/v1/producers"  # POST {topics:[…]} register
CONSUMERS = "/v1/consumers"  # POST {topics:[…], start} register
GROUPS = "/v1/groups"  # GET the consumer groups
GROUP = "/v1/groups/{group}"  # GET describe, DELETE one without members
GROUP_OFFSETS = "/v1/groups/{group}/offsets"  # GET where it stands and its lag, PUT {offsets: [{topic, partition, offset}]} while it has no members
MEMBERS = "/v1/groups/{group}/members"  # POST {topics, [strategy], [start], [session_timeout_seconds], [instance_id]} join
MEMBER = "/v1/groups/{group}/members/{member_id}"  # DELETE leave
MEMBER_HEARTBEAT = "/v1/groups/{group}/members/{member_id}/heartbeat"  # POST {[released: [{topic, partition}]]}
MEMBER_CLAIMS = "/v1/groups/{group}/members/{member_id}/claims"  # POST {generation, partitions: [{topic, partition}]}: where to begin
MEMBER_OFFSETS = "/v1/groups/{group}/members/{member_id}/offsets"  # PUT {generation, offsets: [{topic, partition, offset}]}: commit
MANAGERS = "/v1/managers"  # GET the members, POST {node_id, url} add one
MANAGER = "/v1/managers/{node_id}"  # DELETE: remove it
HEARTBEATS = "/v1/heartbeats"  # POST {producers:[ids], consumers:[ids]}

# --- native face: brokers, and through the balancer ---
PARTITION = "/v1/topics/{topic}/partitions/{partition}"  # GET start and end offset, epoch
RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"  # POST append [?expected_end_offset], GET read
OFFSETS = "/v1/topics/{topic}/partitions/{partition}/offsets/{consumer_id}"  # GET, PUT {offset}
TRIM = "/v1/topics/{topic}/partitions/{partition}/trim"  # POST {before_offset}: what lies below is not served any more

# --- between nodes: the one door ---
INTERNAL = "/internal/"
I_IDENTITY = "/internal/identity"  # GET, on a broker or manager: who and which disk
I_BROKERS = "/internal/brokers"  # POST, on a manager: a broker registers
I_HEARTBEATS = "/internal/heartbeats"  # POST, on a manager: {heartbeats: [{type, actor_id, age_seconds}]}
I_PROPOSE = "/internal/propose"  # POST, on the write manager: {command, client_id, client_seq}
I_RAFT_APPEND = "/internal/raft/append"  # POST, on a manager
I_RAFT_VOTE = "/internal/raft/vote"
I_RAFT_SNAPSHOT = "/internal/raft/snapshot"  # the leader's state, for a manager behind the beginning of its log
I_RAFT_TIMEOUT_NOW = "/internal/raft/timeout-now"  # the leader hands over
I_PROMISE = "/internal/partitions/promise"  # POST, on a broker: {promises: […]}
I_APPOINT = "/internal/partitions/appoint"  # POST, on a broker: {appointments: […]}
I_LEARNERS = "/internal/partitions/learners"  # POST, on a broker: {learners: [{topic_id, partition, epoch, learners}]}
I_DAMAGED = "/internal/partitions/damaged"  # POST, on a broker: {replicas: [{topic_id, partition, epoch, reason}]}: serve them no more
I_STATUS = "/internal/partitions/status"  # POST, on a broker: {partitions: [[topic_id, partition], …]}, or {} for all that it holds
I_APPEND = "/internal/partitions/append"  # POST, on a broker, from a leader: entries as they are stored
I_SEED = "/internal/partitions/seed"  # POST, on a broker, from a leader: a start and the state, for a replica behind the start of the leader's log
I_DROP = "/internal/partitions/drop"  # POST, on a broker: {topic_ids: […], partitions: [[topic_id, partition], …]}
I_ENDS = "/internal/partitions/ends"  # POST, on a broker: {partitions: [[topic_id, partition], …], before: microseconds | null}
I_SEARCH = "/internal/partitions/search"  # POST, on a broker: {partition, offset | since, end, [key_base64], max_records, max_bytes, max_scanned}
I_RECORDS = "/internal/partitions/{topic_id}/{partition}/records"  # POST: append by identity
I_DEQUEUE = "/internal/partitions/{topic_id}/{partition}/dequeue"  # POST {consumer, request_id}
I_OFFSETS = "/internal/partitions/{topic_id}/{partition}/offsets"  # POST {consumer, offset | start, [generation, claim]}
I_SIZES = "/internal/sizes"  # POST {consumer, partitions: [[topic_id, partition], …]}: what it has not read, and where it stands
