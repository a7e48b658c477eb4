"""Every error of the system, in one tree.

A class fixes four things: its ``code`` (the name on the wire), its ``status`` (HTTP), whether the same request
may simply be sent again (``retriable``), and what is known of its effect (``outcome``): ``"not_done"`` means that
nothing was stored, ``"unknown"`` that it may have been. The docstring's first line is the default message.
What the caller needs next travels in ``details`` and as attributes, JSON values only.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

NOT_DONE = "not_done"
UNKNOWN = "unknown"


class MyQueueError(Exception):
    """The operation failed."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: ClassVar[str] = NOT_DONE

    def __init__(self, message: str | None = None, **details: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().split("\n")[0])
        self.message: str = str(self.args[0])
        self.details = {name: value for name, value in details.items() if value is not None}

    def at(self, **place: int) -> Self:
        """The same error of one part of what was sent: ``line=3`` goes before the message and into the details. Without a place: itself."""
        if not place:
            return self
        where = ", ".join(f"{name} {number}" for name, number in place.items())
        error = type(self)(f"{where}: {self.message}")
        error.details = {**self.details, **place}
        return error

    def __getattr__(self, name: str) -> Any:
        """Details read as attributes: ``error.leader`` is ``error.details["leader"]``; one not given is an AttributeError."""
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, {self.details!r})"


# --- a caller's mistake: 4xx, not retriable, nothing was done ---


class BadRequestError(MyQueueError):
    """The request is not well formed."""

    code, status = "bad_request", 400


class InvalidNameError(BadRequestError):
    """The name is not allowed."""

    code = "invalid_name"


class CorruptBatchError(BadRequestError):
    """The batch is not well formed."""

    code = "corrupt_batch"


class UnauthorizedError(MyQueueError):
    """The request carries no valid credentials."""

    code, status = "unauthorized", 401


class ForbiddenError(MyQueueError):
    """The caller may not do this."""

    code, status = "forbidden", 403


class NotFoundError(MyQueueError):
    """There is no such thing."""

    code, status = "not_found", 404


class UnknownTopicError(NotFoundError):
    """The topic does not exist."""

    code = "unknown_topic"


class UnknownPartitionError(NotFoundError):
    """The topic has no such partition."""

    code = "unknown_partition"


class UnknownProducerError(NotFoundError):
    """The producer is not registered for this topic."""

    code = "unknown_producer"


class UnknownConsumerError(NotFoundError):
    """The consumer is not registered for this topic."""

    code = "unknown_consumer"


class UnknownBrokerError(NotFoundError):
    """There is no broker with this id."""

    code = "unknown_broker"


class UnknownGroupError(NotFoundError):
    """There is no such consumer group."""

    code = "unknown_group"


class UnknownMemberError(NotFoundError):
    """The consumer group has no such member: it left, or was silent for too long. Join again."""

    code = "unknown_member"


class MethodNotAllowedError(MyQueueError):
    """This path does not know this method."""

    code, status = "method_not_allowed", 405


class SlowRequestError(MyQueueError):
    """The request did not arrive in time; nothing was done."""

    code, status, retriable = "slow_request", 408, True


class ConflictError(MyQueueError):
    """The request conflicts with the present state."""

    code, status = "conflict", 409


class TopicExistsError(ConflictError):
    """The topic exists already."""

    code = "topic_exists"


class SequenceGapError(ConflictError):
    """An earlier batch of this producer is missing; nothing was stored."""

    code, retriable = "sequence_gap", True


class DuplicateSequenceError(ConflictError):
    """This sequence was stored before, so long ago that its offset is no longer known."""

    code = "duplicate_sequence"


class MemberFencedError(ConflictError):
    """Another member reads this partition by now, or this one came again in a newer generation."""

    code = "member_fenced"


class EndOffsetMismatchError(ConflictError):
    """The partition does not end where the request expects it to; ``end_offset`` says where it ends. Nothing was stored."""

    code = "end_offset_mismatch"


class ProducerFencedError(ConflictError):
    """A newer epoch of this producer is known."""

    code = "producer_fenced"


class RefusedError(ConflictError):
    """The operation would lose data or is not possible here."""

    code = "refused"


class OffsetOutOfRangeError(MyQueueError):
    """The offset lies outside the log; ``earliest`` and ``latest`` say what there is."""

    code, status = "offset_out_of_range", 416


class TooLargeError(MyQueueError):
    """The request or a record in it is too large; nothing was stored."""

    code, status = "too_large", 413


class UnsupportedMediaTypeError(MyQueueError):
    """The content type is not one that is read here."""

    code, status = "unsupported_media_type", 415


# --- the caller may, and not so fast: 429, retriable ---


class QuotaExceededError(MyQueueError):
    """The partition has taken what its topic's quota allows; ``wait_seconds`` says when it takes more. Nothing was stored."""

    code, status, retriable = "quota_exceeded", 429, True


# --- the system cannot now: 503, retriable ---


class UnavailableError(MyQueueError):
    """The service cannot answer now."""

    code, status, retriable = "unavailable", 503, True


class NotLeaderError(UnavailableError):
    """Another node leads; ``leader`` names it where it is known. Nothing was stored."""

    code = "not_leader"


class NotYetError(UnavailableError):
    """This replica has not got so far yet."""

    code = "not_yet"


class OverloadedError(UnavailableError):
    """Too much is waiting already; nothing was stored."""

    code = "overloaded"


class StaleMetadataError(UnavailableError):
    """This node has not applied the wanted index in time."""

    code = "stale_metadata"


class DiskLostError(UnavailableError):
    """This node runs on an older copy of its database: it does its part again once it has taken a new identity."""

    code = "disk_lost"


class OutcomeUnknownError(UnavailableError):
    """No answer in time: it may or may not have been done; repeat with the same sequence or request id."""

    code, outcome = "outcome_unknown", UNKNOWN


class UnreachableError(UnavailableError):
    """No connection could be made; the request was not sent."""

    code = "unreachable"


# --- the system did a part of it ---


class PartlyStoredError(MyQueueError):
    """Some of the request's records are stored and others are not; ``partitions`` says which. Sent again as a whole, those would be stored twice."""

    code, status, outcome = "partly_stored", 502, UNKNOWN


# --- the system is at fault or must not go on ---


class InternalError(MyQueueError):
    """A fault in the server; its log has the details under the request id."""

    code, status, outcome = "internal", 500, UNKNOWN


class LogFaultError(MyQueueError):
    """The log of this replica contradicts what was agreed; it is no longer served."""

    code = "log_fault"


class ConfigurationError(MyQueueError):
    """The settings cannot work."""

    code = "configuration"


# --- the SDK's own: never on the wire ---


class DeliveryError(MyQueueError):
    """Some messages were not delivered; ``undelivered`` holds them."""

    code, outcome = "delivery", UNKNOWN

    def __init__(self, message: str | None = None, undelivered: tuple = ()) -> None:
        super().__init__(message)
        self.undelivered = tuple(undelivered)


class ReceiptsError(MyQueueError):
    """Messages were delivered, and receipts of theirs could not be written; ``path`` and ``batches`` say where and how many."""

    code, outcome = "receipts", UNKNOWN  # of the messages nothing is to be repeated, so it must not read as "not done"


class BufferFullError(MyQueueError):
    """The producer's buffer stayed full for the whole wait; the message was not accepted."""

    code, retriable = "buffer_full", True


class ClosedError(MyQueueError):
    """The client was stopped."""

    code = "closed"


def _tree(root: type[MyQueueError]) -> list[type[MyQueueError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


BY_CODE: dict[str, type[MyQueueError]] = {error.code: error for error in _tree(MyQueueError)}
