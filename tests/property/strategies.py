"""What random inputs look like."""

from __future__ import annotations

from hypothesis import strategies as st

from myqueue.protocol.types import Record

values = st.binary(max_size=64) | st.sampled_from([b"", b"\xff\xff\xff\xff", b"\xff" * 8, b"\0" * 4, b"x" * 7_900, b"y" * 20_000])
headers = st.lists(st.tuples(st.text(max_size=8).filter(lambda name: name.isprintable()), st.none() | st.binary(max_size=16)), max_size=3).map(tuple)
records = st.builds(Record, values, st.none() | st.binary(max_size=24), headers, st.none() | st.integers(0, 2**63 - 1))
batches = st.lists(records, min_size=1, max_size=30)


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """A batch whose framing is right and whose columns hold anything."""
    columns = draw(st.integers(0, 15)) | 2
    count = draw(st.integers(1, 3))
    parts = []
    for bit in (1, 2, 4, 8):
        if columns & bit:
            sizes = st.integers(-1, 9).map(lambda size: size.to_bytes(4, "big", signed=True))
            raw = b"".join(draw(st.lists(sizes | st.binary(max_size=9), max_size=6)))
            raw += bytes(max(0, 4 * count - len(raw)))
            parts.append(len(raw).to_bytes(4, "big") + raw)
    payload = b"".join(parts)
    return b"MQB1" + b"".join(number.to_bytes(4, "big") for number in (count, columns, len(payload))) + payload


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """A batch with a few bytes changed, cut out, doubled or put in."""
    raw = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        action = draw(st.sampled_from(["set", "int", "cut", "insert", "truncate"]))
        if action == "set" and raw:
            raw[at] = draw(st.integers(0, 255))
        elif action == "int":
            raw[at:at + 4] = draw(st.sampled_from([-1, -2, 0, 1, 2, 4, 5, 8, 2**31 - 1, -(2**31), len(raw)])).to_bytes(4, "big", signed=True)
        elif action == "cut":
            del raw[at:at + draw(st.integers(1, 8))]
        elif action == "insert":
            raw[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            del raw[at:]
    return bytes(raw)
