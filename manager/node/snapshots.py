"""A manager's state on its way to another one: read when it is sent, small on the wire, checked before it is taken.

One body and not a series of parts: deflated, the state of 10,000 partitions is an eighth of what a body may have. It is the newest snapshot that
is kept, so that leader and receiver hold the same text with the same digest; the entries behind it follow by ordinary appends.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import zlib
from typing import Any, NamedTuple

from db.replication import OfferedStart
from db.snapshots import Snapshot, newest
from db.wal_store import WalStore
from manager.raft import messages
from manager.raft.messages import InstallSnapshot
from myqueue.errors import BadRequestError, LogFaultError, TooLargeError
from myqueue.protocol.metadata_state import state_digest

WIRE_BYTES_MAX = 8 << 20  # of a state on its way; the body limit of a node is above it
STATE_BYTES_MAX = 256 << 20  # of its text: what an answer may unpack to


class StateOrder(NamedTuple):
    """The state of the leader of a term is to be sent. Another term's rounds mean nothing, so the order ends with its term."""

    target: int
    term: int
    round: int


def offer_of(store: WalStore, order: StateOrder) -> InstallSnapshot | None:
    """The newest snapshot as an offer; None where this manager does not lead in that term any more.

    Raises:
        LogFaultError: no snapshot is kept, although the log begins behind one.
    """
    with store.reading() as held:
        state = held.state
        if not state.leading or state.current_term != order.term:
            return None
        snapshot = newest(held)
    if snapshot is None:
        raise LogFaultError(f"the log begins at {state.snapshot_index} and there is no snapshot")
    return InstallSnapshot(order.term, state.node_id, OfferedStart(snapshot.index, snapshot.term, snapshot.chain), snapshot, order.round)


def offer_to_json(offer: InstallSnapshot) -> dict[str, Any]:
    """Raises TooLargeError where the state does not fit into one body."""
    snapshot: Snapshot = offer.state
    text = snapshot.state.encode()
    deflated = base64.b64encode(zlib.compress(text, 6)).decode()
    if len(deflated) > WIRE_BYTES_MAX or len(text) > STATE_BYTES_MAX:
        raise TooLargeError(f"the state at {snapshot.index} has {len(text)} bytes, {len(deflated)} deflated: it does not fit into one message")
    return messages.snapshot_to_json(dataclasses.replace(offer, state={"deflated": deflated, "digest": snapshot.digest.hex()}))


def offer_from_json(body: Any) -> InstallSnapshot:
    """The offer with its state unpacked.

    Raises:
        BadRequestError: it is not well formed, or does not match its digest.
    """
    offer = messages.snapshot_from_json(body)
    try:
        digest, text = bytes.fromhex(offer.state["digest"]), _unpacked(offer.state["deflated"])
    except (KeyError, TypeError, ValueError, zlib.error, binascii.Error) as error:
        raise BadRequestError(f"the state is not well formed: {error!r}"[:200]) from None
    if state_digest(text) != digest:
        raise BadRequestError(f"the state at {offer.start.position} does not match its digest")
    return dataclasses.replace(offer, state=Snapshot(offer.start.position, offer.start.epoch, offer.start.chain, text, digest))


def _unpacked(deflated: str) -> str:
    inflater = zlib.decompressobj()
    text = inflater.decompress(base64.b64decode(deflated, validate=True), STATE_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("it is cut off, or too large")
    return text.decode()
