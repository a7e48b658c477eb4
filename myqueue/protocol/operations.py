"""PURE. Every operation of the native face, and what each process answers: one row each, from which the OpenAPI document is made.

A new route is one row here: ``tests/repo/test_operations.py`` compares the rows with the rules of the real apps, both ways.
Everything that all operations of a kind have in common (arguments in the path, errors, headers) is added by ``openapi.document``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import errors as e
from . import limits, routes
from .batch import BATCH_TYPE, ENTRIES_TYPE, NDJSON_TYPES, REQUEST_BYTES_MAX
from .schemas import GREETING, TOPIC, Schema, boolean, integer, listed, nullable, number, one_of, ref, shape, text

JSON_TYPE, EVENTS_TYPE = "application/json", "text/event-stream"
BROKER, MANAGER, EVERY_NODE = "broker", "manager", "every node"  # who answers; the balancer passes on to the first two


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument in the path, the query or a header."""

    place: str
    name: str
    schema: Schema
    help: str = ""
    is_needed: bool = False
    example: Any = None


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: a schema for each content type, the first one shown with the example."""

    content: Mapping[str, Schema]
    example: Any = None
    is_needed: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. Content types as for a body."""

    content: Mapping[str, Schema]
    help: str
    status: int = 200
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table. ``name`` is its operationId; ``errors`` are those that are its own."""

    name: str
    method: str
    path: str
    served_by: str
    group: str
    summary: str
    answer: Answer
    help: str = ""
    arguments: tuple[Argument, ...] = ()
    body: Body | None = None
    errors: tuple[type[e.MyQueueError], ...] = ()
    other_answers: tuple[Answer, ...] = ()  # beside ``answer``, each with another status

    @property
    def path_arguments(self) -> tuple[Argument, ...]:
        return tuple(PATH_ARGUMENTS[name] for name in re.findall(r"{(\w+)}", self.path))

    @property
    def all_errors(self) -> tuple[type[e.MyQueueError], ...]:
        """Its own and those of its kind, each once, by status and code."""
        kind = ERRORS[self.served_by] + (OF_A_PATH if self.path_arguments else ()) + (OF_A_BODY if self.body else ())
        return tuple(sorted({*self.errors, *kind}, key=lambda error: (error.status, error.code)))


def body_of(schema: Schema, example: Any, *, is_needed: bool = True, **others: Schema) -> Body:
    return Body({JSON_TYPE: schema, **others}, example, is_needed)


def answer_of(schema: str | Schema, help: str = "", status: int = 200) -> Answer:
    made = ref(schema) if isinstance(schema, str) else schema
    return Answer({JSON_TYPE: made}, help or "done", status)


PATH_ARGUMENTS = {argument.name: argument for argument in (
    Argument("path", "topic", ref("TopicName"), "the topic", True, TOPIC),
    Argument("path", "partition", ref("PartitionNumber"), "the partition, from 0", True, 0),
    Argument("path", "consumer_id", ref("ConsumerId"), "the number that the registration gave", True, 1),
    Argument("path", "broker_id", ref("BrokerId"), "the broker", True, 4),
    Argument("path", "node_id", ref("NodeId"), "the manager", True, 4),
    Argument("path", "group", ref("GroupName"), "the consumer group", True, "readers"),
    Argument("path", "member_id", ref("MemberId"), "the member, as joining told it", True, 1),
)}

# --- the errors of a kind ---

ERRORS: Mapping[str, tuple[type[e.MyQueueError], ...]] = {
    EVERY_NODE: (),
    MANAGER: (e.BadRequestError, e.UnauthorizedError, e.InternalError, e.UnavailableError, e.NotLeaderError, e.OverloadedError,
              e.StaleMetadataError, e.DiskLostError, e.OutcomeUnknownError, e.UnreachableError),
    BROKER: (e.BadRequestError, e.UnauthorizedError, e.InternalError, e.UnavailableError, e.NotLeaderError, e.NotYetError, e.OverloadedError,
             e.OutcomeUnknownError, e.UnreachableError, e.UnknownTopicError, e.UnknownPartitionError, e.LogFaultError),
}
OF_A_PATH = (e.NotFoundError, e.MethodNotAllowedError, e.InvalidNameError)  # an argument that makes it another path, or none
OF_A_BODY = (e.TooLargeError,)

# --- arguments and headers that several share ---

_INDEX = integer("an index of the metadata, as MyQueue-Applied-Index told it")
FRESHNESS = (Argument("header", routes.MIN_INDEX, _INDEX, "answer as of this index or later, or with 503"),
             Argument("header", routes.PREFER_INDEX, _INDEX, "wait for this index where it can be expected, and answer in any case"))
_SEQUENCE = (
    Argument("header", routes.PRODUCER_ID, ref("ProducerId"), "the three together make a retry safe: what was stored is not stored again"),
    Argument("header", routes.PRODUCER_EPOCH, integer(maximum=limits.INT32_MAX), "as the registration told it"),
    Argument("header", routes.PRODUCER_SEQ, integer(), "0 for the producer's first batch to this partition, then one more for each"),
)
_IDENTITY = Argument("query", "topic_id", ref("TopicId"), "this topic and no other of its name: 404 where it was deleted, or made anew since")
_BINARY = {"type": "string", "format": "binary"}
_LINES = text("a record a line, as a JSON object; lines without anything in them do not count")
_CONFIG = {"retention_ms": 604_800_000}
_PLACE, _A_PLACE = {"topic": ref("TopicName"), "partition": ref("PartitionNumber")}, {"topic": TOPIC, "partition": 0}
_GENERATION = integer("as the last answer told it", minimum=1)
_STAMP = {"committer": integer("a number that no other client has", minimum=1), "sequence": integer("of this client's commits", minimum=1)}
_STAMPED = "`committer` and `sequence` go together: where a later commit of the same committer has been taken this one changes nothing."
_TOPICS = listed(ref("TopicName"), least=1, most=limits.TOPICS_MAX)

HEADERS: Mapping[str, Schema] = {
    routes.NODE: text("which node answered"),
    routes.REQUEST_ID: text("names this request in the logs; one that the client gives is kept"),
    routes.APPLIED_INDEX: integer("the metadata index that the answer is made from; of a write, where it is done"),
    routes.FRESHNESS: number("seconds since this manager heard of the write manager"),
    routes.OFFSET: integer("where the answer begins: what was meant by a word or a time"),
    routes.START_OFFSET: integer("the first offset that is left"),
    routes.END_OFFSET: integer("the offset that the next message will have"),
    routes.EPOCH: integer("of the leadership that answered"),
    "Cache-Control": text("no-store, unless the answer will be the same for ever"),
    "ETag": text("of such an answer"),
    "Vary": text("each format is an answer of its own"),
    "Retry-After": integer("seconds"),
}
ON_EVERY_ANSWER = (routes.NODE, routes.REQUEST_ID)
_OF_A_READ = (routes.OFFSET, routes.START_OFFSET, routes.END_OFFSET, routes.EPOCH, "Cache-Control", "ETag", "Vary")
BY_A_MANAGER = (routes.APPLIED_INDEX, routes.FRESHNESS)

# --- the table ---

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "list_topics", "GET", routes.TOPICS, MANAGER, "Topics", "Every topic.",
        answer_of(shape("", {"topics": listed(ref("Topic"))})),
        arguments=(Argument("query", "fresh", one_of("true", "false", default="false"), "with all that was done before, whichever manager answers"),
                   *FRESHNESS)),
    Operation(
        "create_topic", "POST", routes.TOPICS, MANAGER, "Topics", "Create a topic.",
        answer_of("CreatedTopic", "it is there, and every partition has a leader that takes records", 201),
        body=body_of(shape("", {"topic": ref("TopicName"), "partitions": integer("how many", minimum=1, maximum=limits.PARTITIONS_MAX, default=1),
                                "replication_factor": integer("replicas of each partition; three where there are as many brokers, if it is left out",
                                                              minimum=1, maximum=limits.FACTOR_MAX),
                                "config": ref("TopicConfig")}, optional=("partitions", "replication_factor", "config"), closed=True),
                     {"topic": TOPIC, "partitions": 3, "config": _CONFIG}),
        errors=(e.InvalidNameError, e.TopicExistsError, e.RefusedError)),
    Operation(
        "describe_topic", "GET", routes.TOPIC, MANAGER, "Topics", "A topic with its partitions.", answer_of("TopicDescription"),
        arguments=FRESHNESS, errors=(e.UnknownTopicError,)),
    Operation(
        "alter_topic", "PATCH", routes.TOPIC, MANAGER, "Topics", "Change fields of a topic's config.",
        answer_of("AlteredTopic", "decided; brokers act by it from their next look on"),
        body=body_of(shape("", {"config": ref("TopicConfigChange")}, closed=True), {"config": _CONFIG}),
        errors=(e.UnknownTopicError, e.ConflictError)),
    Operation(
        "list_partitions", "GET", routes.PARTITIONS, MANAGER, "Topics", "A topic's partitions.", answer_of("Partitions"), arguments=FRESHNESS,
        errors=(e.UnknownTopicError,)),
    Operation(
        "add_partitions", "POST", routes.PARTITIONS, MANAGER, "Topics", "Let a topic have so many partitions in all.",
        answer_of("AddedPartitions", "they are there, each with a leader that takes records", 201),
        other_answers=(answer_of("AddedPartitions", "there were as many already"),),
        help="Records with a key go to other partitions from then on. None is ever taken away.",
        body=body_of(shape("", {"partitions": integer("in all", minimum=1, maximum=limits.PARTITIONS_MAX)}, closed=True), {"partitions": 6}),
        errors=(e.UnknownTopicError, e.ConflictError)),
    Operation(
        "elect_leader", "POST", routes.ELECT, MANAGER, "Topics", "Let another replica of a partition lead.", answer_of("Elected"),
        body=body_of(shape("", {"broker_id": ref("BrokerId")}, optional=("broker_id",), closed=True), {}, is_needed=False),
        help="Without a broker the one of its replicas' that leads the fewest. Where it leads already nothing is done.",
        errors=(e.UnknownTopicError, e.UnknownPartitionError, e.RefusedError)),
    Operation(
        "repair_replica", "POST", routes.REPAIR, MANAGER, "Topics", "Have a broker's replica of a partition made again from the others.",
        answer_of("Repairing", "it goes; another is made behind it, and the broker is not among `missing` any more when that is done"),
        body=body_of(shape("", {"broker_id": ref("BrokerId")}, closed=True), {"broker_id": 1}),
        help="For a replica that an audit found damaged: it is thrown away. The partition serves on; where the broker leads it, another one does "
             "then. Refused where the other replicas are no majority by themselves.",
        errors=(e.UnknownTopicError, e.UnknownPartitionError, e.RefusedError)),
    Operation(
        "move_partition", "POST", routes.MOVE, MANAGER, "Topics", "Move a partition's replicas to named brokers.",
        answer_of("Moving", "decided; the replicas move behind it, and `wanted` is null when that is done"),
        body=body_of(shape("", {"brokers": nullable(listed(ref("BrokerId"), "all that are to hold a replica", least=1, most=limits.FACTOR_MAX),
                                                    "stop a move where it stands")}, closed=True), {"brokers": [1, 2]}),
        help="The partition serves on. Its replication factor is the number of these brokers from now on; where a move is stopped, the number of "
             "replicas that there are. A broker that is down is waited for, and nobody gives its replica up meanwhile.",
        errors=(e.UnknownTopicError, e.UnknownPartitionError, e.UnknownBrokerError, e.RefusedError)),
    Operation(
        "produce_to_topic", "POST", routes.TOPIC_RECORDS, MANAGER, "Records", "Send records to a topic, each to its partition.",
        answer_of("Spread", "all of them are on disk on a majority of the replicas"),
        help="Each goes to the partition that it names, else to its key's; those with neither stay together. All or nothing in each partition: "
             "where some have stored their part and others have not the answer is 502 `partly_stored`, and its details say which.",
        body=body_of({"anyOf": [ref("AddressedRecord"), shape("", {"records": listed(ref("AddressedRecord"), least=1)}, closed=True)]},
                     {"records": [{"value": GREETING, "key": "a"}, {"value": GREETING, "partition": 0}]}),
        errors=(e.UnknownTopicError, e.UnknownPartitionError, e.UnsupportedMediaTypeError, e.QuotaExceededError, e.PartlyStoredError)),
    Operation(
        "consumer_lag", "GET", routes.LAG, MANAGER, "Registrations", "How far a consumer is, by partition.", answer_of("Lag"),
        arguments=(Argument("query", "consumer_id", ref("ConsumerId"), "as its registration told it", True, 1), *FRESHNESS),
        errors=(e.UnknownTopicError, e.UnknownConsumerError)),
    Operation(
        "search_topic", "GET", routes.SEARCH, MANAGER, "Records", "Every message with a key, or of a time, or both.", answer_of("Found"),
        help="Complete over all partitions, ordered by partition and offset, as of the ends that the first page fixed. A page may hold few "
             "messages, or none, and have a cursor all the same: only a null cursor is the end. A key, or a time, is needed.",
        arguments=(Argument("query", "key", text(), "messages with this key, as text", example="a"),
                   Argument("query", "key_base64", {"type": "string", "contentEncoding": "base64"}, "the same, as bytes"),
                   Argument("query", "from_timestamp", integer(), "appended at this time or later: microseconds since 1970"),
                   Argument("query", "to_timestamp", integer(), "appended before this time"),
                   Argument("query", "max_records", integer(minimum=1, maximum=1_000, default=100), "of a page"),
                   Argument("query", "cursor", text(), "as the page before told it; the other arguments as for that"), *FRESHNESS),
        errors=(e.UnknownTopicError, e.ConflictError)),
    Operation(
        "delete_topic", "DELETE", routes.TOPIC, MANAGER, "Topics", "Delete a topic with its messages and registrations.",
        answer_of("DeletedTopic", "decided, and dropped by every broker that can be reached"), errors=(e.UnknownTopicError,)),
    Operation(
        "report_loss", "GET", routes.RECOVERY, MANAGER, "Topics", "What would be lost if partitions without a majority went on.",
        answer_of("Losses"), arguments=FRESHNESS, errors=(e.UnknownTopicError,)),
    Operation(
        "recover_topic", "POST", routes.RECOVERY, MANAGER, "Topics", "Let partitions without a majority go on with the replicas that are left.",
        answer_of("Losses", "decided for these partitions; what the report says may be lost"),
        body=body_of(shape("", {"accept_loss": one_of(True, help="said only by who has read the report"),
                                "partitions": nullable(listed(ref("PartitionNumber"), "these; all of them where it is left out"))},
                           optional=("partitions",), closed=True), {"accept_loss": True, "partitions": [0]}),
        errors=(e.UnknownTopicError, e.RefusedError)),

    Operation(
        "describe_partition", "GET", routes.PARTITION, BROKER, "Records", "A partition's offsets and epoch.", answer_of("PartitionState"),
        arguments=(_IDENTITY,)),
    Operation(
        "append_records", "POST", routes.RECORDS, BROKER, "Records", "Append records, all or nothing.",
        answer_of("Appended", "they are on disk on a majority of the replicas"),
        arguments=(*_SEQUENCE, _IDENTITY,
                   Argument("query", "expected_end_offset", ref("Offset"), "store them only where they begin at this offset, else 409 with the "
                            "present end; what the same sequence has stored before is answered as ever")),
        help="The body is one record, a batch of them, a record a line, or the binary batch that the SDK sends. A retry with the same sequence is "
             "stored once. Where one record is bad nothing is stored; the details say which: `record` of a batch or `block` of a binary one, "
             "from 0, or `line`, from 1.",
        body=Body({JSON_TYPE: {"anyOf": [ref("Record"), ref("Batch")]}, **dict.fromkeys(NDJSON_TYPES, _LINES),
                   BATCH_TYPE: {**_BINARY, "maxLength": REQUEST_BYTES_MAX}}, {"records": [{"value": GREETING, "key": "a"}]}),
        errors=(e.CorruptBatchError, e.UnsupportedMediaTypeError, e.UnknownProducerError, e.SequenceGapError, e.DuplicateSequenceError,
                e.ProducerFencedError, e.EndOffsetMismatchError, e.QuotaExceededError)),
    Operation(
        "read_records", "GET", routes.RECORDS, BROKER, "Records", "Read messages from an offset or a time on.",
        Answer({JSON_TYPE: ref("Read"), ENTRIES_TYPE: _BINARY, EVENTS_TYPE: text("Server-Sent Events")},
               "messages from there on, none where there are no more", headers=_OF_A_READ),
        other_answers=(Answer({}, "the answer that has the tag is the same still", 304, _OF_A_READ),),
        help=f"At least one message comes where there is one, however large. With Accept: {ENTRIES_TYPE} whole stored blocks come; with "
             f"{EVENTS_TYPE} it goes on: an event a message, its id the offset, until the client hangs up or an event named error says why "
             "it ends. A range by number that does not end because the log does will be the same for ever: it has an ETag, and with `topic_id` it "
             "may be kept without asking again.",
        arguments=(
            Argument("query", "offset", {"anyOf": [one_of("earliest", "latest"), ref("Offset")], "default": "earliest"}, "where to begin",
                     example="earliest"),
            Argument("query", "timestamp", integer(), "where to begin, instead of `offset`: at the first message appended at or after this time, in "
                     "microseconds since 1970; at the end where there is none"),
            Argument("query", "until_offset", ref("Offset"), "where to end, exclusive; not below `offset`"),
            Argument("query", "max_records", integer(minimum=1, default=limits.RECORDS_DEFAULT), f"cut to {limits.RECORDS_MAX}"),
            Argument("query", "max_bytes", integer(minimum=1, default=limits.BYTES_DEFAULT), f"cut to {limits.BYTES_MAX}"),
            Argument("query", "wait_seconds", {**number(), "default": 0},
                     f"wait so long for a message where there is none; cut to {limits.WAIT_SECONDS_MAX:g}"),
            Argument("header", "Last-Event-ID", ref("Offset"), "of a stream: begin behind this offset, whatever `offset` says"),
            _IDENTITY, Argument("header", "If-None-Match", text(), "tags of answers that the client has: 304 where it is one of them")),
        errors=(e.OffsetOutOfRangeError,)),
    Operation(
        "trim_partition", "POST", routes.TRIM, BROKER, "Records", "Drop the messages below an offset, for all consumers and for good.",
        answer_of("Trimmed"), arguments=(_IDENTITY,),
        body=body_of(shape("", {"before_offset": integer("at most the end")}, closed=True), {"before_offset": 0}),
        errors=(e.OffsetOutOfRangeError, e.RefusedError)),
    Operation(
        "get_offset", "GET", routes.OFFSETS, BROKER, "Records", "Where a consumer stands in a partition.", answer_of("ConsumerOffset"),
        arguments=(_IDENTITY,),
        errors=(e.UnknownConsumerError,)),
    Operation(
        "commit_offset", "PUT", routes.OFFSETS, BROKER, "Records", "Set where a consumer stands.", answer_of("ConsumerOffset", "it is on disk"),
        arguments=(_IDENTITY,),
        help=f"{_STAMPED} Without them the one that arrives last counts.",
        body=body_of(shape("", {"offset": integer("of the next message to read"), **_STAMP}, optional=tuple(_STAMP), closed=True), {"offset": 0}),
        errors=(e.UnknownConsumerError, e.OffsetOutOfRangeError)),

    Operation(
        "register_producers", "POST", routes.PRODUCERS, MANAGER, "Registrations", "Register a producer of each topic.",
        answer_of("Producers"), help="Topics that are missing are created, with one partition, unless `create` is false.",
        body=body_of(shape("", {"topics": _TOPICS, "create": boolean("whether missing topics are created", default=True)}, optional=("create",),
                           closed=True), {"topics": [TOPIC]}),
        errors=(e.InvalidNameError, e.UnknownTopicError, e.RefusedError)),
    Operation(
        "register_consumers", "POST", routes.CONSUMERS, MANAGER, "Registrations", "Register a consumer of each topic.", answer_of("Consumers"),
        body=body_of(shape("", {"topics": _TOPICS, "start": one_of("earliest", "latest", default="earliest")}, optional=("start",), closed=True),
                     {"topics": [TOPIC]}),
        errors=(e.InvalidNameError, e.UnknownTopicError)),
    Operation(
        "heartbeat", "POST", routes.HEARTBEATS, MANAGER, "Registrations", "Tell that producers and consumers are alive.", answer_of(shape("", {})),
        body=body_of(shape("", {"producers": listed(ref("ProducerId"), most=limits.IDS_MAX),
                                "consumers": listed(ref("ConsumerId"), most=limits.IDS_MAX)}, optional=("producers", "consumers"), closed=True),
                     {"producers": [1], "consumers": [1]}, is_needed=False)),

    Operation(
        "list_groups", "GET", routes.GROUPS, MANAGER, "Consumer groups", "Every consumer group.",
        answer_of(shape("", {"groups": listed(ref("Group"))})), arguments=FRESHNESS),
    Operation(
        "describe_group", "GET", routes.GROUP, MANAGER, "Consumer groups", "A group with its members.", answer_of("GroupDescription"),
        arguments=FRESHNESS, errors=(e.UnknownGroupError,)),
    Operation(
        "delete_group", "DELETE", routes.GROUP, MANAGER, "Consumer groups", "Forget a group without members, and where it stands.",
        answer_of("DeletedGroup"), errors=(e.UnknownGroupError, e.RefusedError)),
    Operation(
        "group_offsets", "GET", routes.GROUP_OFFSETS, MANAGER, "Consumer groups", "Where a group stands, and its lag.", answer_of("GroupOffsets"),
        arguments=(Argument("query", "topic", listed(ref("TopicName")), "these topics, the argument once for each; those that its members read, or "
                            "wherever it has committed, where it is left out", example=TOPIC), *FRESHNESS),
        errors=(e.UnknownGroupError, e.UnknownTopicError)),
    Operation(
        "set_group_offsets", "PUT", routes.GROUP_OFFSETS, MANAGER, "Consumer groups", "Let a group without members go on elsewhere.",
        answer_of("Offsets", "they are on disk"),
        body=body_of(shape("", {"offsets": listed(shape("", {**_PLACE, "offset": {"anyOf": [one_of("earliest", "latest"), ref("Offset")]}},
                                                        closed=True))}, closed=True),
                     {"offsets": [{**_A_PLACE, "offset": "earliest"}]}),
        errors=(e.UnknownGroupError, e.UnknownTopicError, e.UnknownPartitionError, e.RefusedError, e.OffsetOutOfRangeError)),
    Operation(
        "join_group", "POST", routes.MEMBERS, MANAGER, "Consumer groups", "Come into a group, which is made where it is not there.",
        answer_of("Membership", "what it is to read: claim that before you read it", 201),
        help="The same `instance_id` again is the same member, and what knows it by an older generation can commit nothing any more.",
        body=body_of(shape("", {
            "topics": _TOPICS, "strategy": one_of("sticky", "range", "round_robin", default="sticky", help="the same for all members"),
            "start": one_of("earliest", "latest", default="earliest", help="where a new group begins"),
            "session_timeout_seconds": {**number("a member that is silent for so long is replaced", minimum=6), "maximum": 3_600, "default": 10},
            "instance_id": text("made up where it is left out", length_max=255)},
            optional=("strategy", "start", "session_timeout_seconds", "instance_id"), closed=True), {"topics": [TOPIC]}),
        errors=(e.UnknownTopicError, e.ConflictError)),
    Operation(
        "leave_group", "DELETE", routes.MEMBER, MANAGER, "Consumer groups", "Leave a group: others take over at once.",
        answer_of(shape("", {"group": ref("GroupName"), "member_id": ref("MemberId")})), errors=(e.UnknownGroupError, e.UnknownMemberError)),
    Operation(
        "member_heartbeat", "POST", routes.MEMBER_HEARTBEAT, MANAGER, "Consumer groups", "Say that a member is there, and what it has let go of.",
        answer_of("Membership"),
        body=body_of(shape("", {"released": nullable(listed(ref("GroupPartition")))}, optional=("released",), closed=True), {}, is_needed=False),
        errors=(e.UnknownGroupError, e.UnknownMemberError)),
    Operation(
        "claim_partitions", "POST", routes.MEMBER_CLAIMS, MANAGER, "Consumer groups", "Begin to read partitions: where the group stands in each.",
        answer_of("Offsets", "from here on nothing of an older generation is committed there"),
        body=body_of(shape("", {"generation": _GENERATION, "partitions": listed(ref("GroupPartition"))}, closed=True),
                     {"generation": 1, "partitions": [_A_PLACE]}),
        errors=(e.UnknownGroupError, e.UnknownMemberError, e.MemberFencedError, e.UnknownTopicError, e.UnknownPartitionError)),
    Operation(
        "commit_offsets", "PUT", routes.MEMBER_OFFSETS, MANAGER, "Consumer groups", "Commit how far a member is.",
        answer_of("Offsets", "they are on disk"), help=f"Where it fails some of several partitions may have been set; again is harmless. {_STAMPED}",
        body=body_of(shape("", {"generation": _GENERATION,
                                "offsets": listed(shape("", {**_PLACE, "offset": ref("Offset"), "handed_end": integer(
                                    "messages from the offset to below this one are in the member's hands from now on"), **_STAMP},
                                                        optional=("handed_end", *_STAMP), closed=True))}, closed=True),
                     {"generation": 1, "offsets": [{**_A_PLACE, "offset": 0}]}),
        errors=(e.UnknownGroupError, e.UnknownMemberError, e.MemberFencedError, e.OffsetOutOfRangeError, e.UnknownTopicError,
                e.UnknownPartitionError)),

    Operation(
        "cluster_snapshot", "GET", routes.CLUSTER, MANAGER, "Cluster", "All that a client needs for routing.", answer_of("ClusterSnapshot"),
        arguments=(Argument("query", "topic", listed(ref("TopicName")), "only these topics, the argument once for each; all where it is left out",
                            example=TOPIC), *FRESHNESS)),
    Operation(
        "cluster_health", "GET", routes.HEALTH, MANAGER, "Cluster", "Who is alive, and which partitions are not well.", answer_of("Health"),
        arguments=FRESHNESS),
    Operation(
        "list_brokers", "GET", routes.BROKERS, MANAGER, "Cluster", "The brokers, and how much each holds.",
        answer_of(shape("", {"brokers": listed(ref("BrokerLoad"))})), arguments=FRESHNESS),
    Operation(
        "add_broker", "POST", routes.BROKERS, MANAGER, "Cluster", "Register a broker that runs, or start one.",
        answer_of(shape("", {"broker_id": ref("BrokerId")}), "it is registered; again is a success", 201),
        help="Without an address one is started, where the managers run under a local supervisor.",
        body=body_of(shape("", {"host": text("where it listens", length_max=255), "port": integer(minimum=1, maximum=limits.PORT_MAX)},
                           optional=("host", "port"), closed=True), {"host": "127.0.0.1", "port": 9095}, is_needed=False),
        errors=(e.ConflictError,)),
    Operation(
        "remove_broker", "DELETE", routes.BROKER, MANAGER, "Cluster", "Drain a broker and remove it once it holds nothing.", answer_of("Removed"),
        help="While partitions still move the answer is 503: the drain goes on, ask again.", errors=(e.UnknownBrokerError, e.RefusedError)),
    Operation(
        "drain_broker", "POST", routes.DRAIN, MANAGER, "Cluster", "Let a broker's partitions move away, or use it again.", answer_of("Draining"),
        body=body_of(shape("", {"draining": boolean(default=True)}, optional=("draining",), closed=True), {"draining": True}, is_needed=False),
        errors=(e.UnknownBrokerError, e.RefusedError)),
    Operation(
        "list_managers", "GET", routes.MANAGERS, MANAGER, "Cluster", "The managers.", answer_of(shape("", {"managers": listed(ref("Member"))})),
        arguments=FRESHNESS),
    Operation(
        "add_manager", "POST", routes.MANAGERS, MANAGER, "Cluster", "Add a manager that runs with an empty database.",
        answer_of("NewMember", "it gets the log, and a vote once it holds it", 201),
        body=body_of(shape("", {"node_id": ref("NodeId"), "url": text("where it listens", length_max=limits.URL_MAX)}, closed=True),
                     {"node_id": 4, "url": "http://127.0.0.1:5004"}),
        errors=(e.ConflictError, e.RefusedError)),
    Operation(
        "remove_manager", "DELETE", routes.MANAGER, MANAGER, "Cluster", "Remove a manager from the group; it is stopped afterwards.",
        answer_of(shape("", {"node_id": ref("NodeId")})), errors=(e.RefusedError,)),

    Operation(
        "livez", "GET", routes.LIVEZ, EVERY_NODE, "Every process", "Whether the process answers. Free: it asks for no token.", answer_of("Alive")),
    Operation(
        "readyz", "GET", routes.READYZ, EVERY_NODE, "Every process", "Whether the node does its part.", answer_of("Ready"),
        errors=(e.UnauthorizedError, e.UnavailableError)),
    Operation(
        "metrics", "GET", routes.METRICS, EVERY_NODE, "Every process", "The node's counters, for Prometheus.",
        Answer({"text/plain": text()}, "all series, summed over the node's worker processes"), errors=(e.UnauthorizedError,)),
    Operation(
        "openapi", "GET", routes.OPENAPI, EVERY_NODE, "Every process", "This document. Free, as the page is.", answer_of({"type": "object"})),
    Operation(
        "docs", "GET", routes.DOCS, EVERY_NODE, "Every process", "This document as a page.",
        Answer({"text/html": text()}, "one page that needs no other")),
)
