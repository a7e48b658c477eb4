"""Requests as bytes that no client library writes: wrong lengths and chunks, odd heads, two at once, cut off, with a bit changed."""

from __future__ import annotations

from hypothesis import strategies as st

BODY = b'{"value": "framed"}'
_CHUNKS = (b"zz\r\n\r\n", b"-1\r\nx\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n", b"3;a=b\r\nabc\r\n0\r\n\r\n",
           b"F" * 20 + b"\r\nx", b"3\r\nabc\r\n", b"3\r\nabc0\r\n\r\n", b"\r\n0\r\n\r\n", b"3\nabc\n0\n\n", b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
           b" 3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\nrest", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
_HEADS = (
    b"Content-Length: 0", b"Content-Length: %d" % len(BODY), b"Content-Length: +19", b"Content-Length: 19, 19", b"Content-Length: -1",
    b"Content-Length: 1e1", b"Content-Length: 99999999999999999999", b"Content-Length: ", b"Content-Length : 19", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: gzip, chunked",
    b"Host: other", b"Host: ", b" folded", b"X: a\0b", b"X\0: a", b"X: \xff\xfe", b": no name", b"no colon", b"X: " + b"a" * 7_000,
    b"X: " + b"a" * 70_000,
    b"Accept: text/event-stream",
    b"Expect: 100-continue", b"Expect: tea", b"Connection: close, host, content-length", b"Upgrade: h2c", b"X: a\rY: b", b"MyQueue-Forwarded: 1",
    b"Content-Encoding: gzip", b"Content-Type: application/json; charset=\xff", b"Authorization: Basic \xff",
)
_TARGETS = (b"*", b"http://x/v1/topics", b"http://x", b"//x/v1/topics", b"x:80", b"/%", b"/%00", b"/\0", b"/v1/topics?\xff", b"/v1/topics#x",
            b"/a b", b"/" + b"a" * 9_000, b"/..//../v1/topics", b"/%2e%2e/v1/topics", b"/internal/identity", b"/%69nternal/identity", b"",
            b"/v1/topics/%80", b"/\xc3\xa4", b"http://[/v1/topics", b"///")
_VERSIONS = (b"HTTP/0.9", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 x", b"", b"HTTP/11", b"\x16\x03\x01")
_METHODS = (b"GET", b"POST", b"OPTIONS", b"TRACE", b"CONNECT", b"PUT", b"get", b"G\0T", b"A" * 100, b"")


def strategy(path: str) -> st.SearchStrategy[bytes]:
    """What is sent on one connection; ``path`` is one to which BODY may be posted."""
    target = path.encode()
    made = st.one_of(
        st.builds(_request, st.sampled_from(_METHODS), st.just(target) | st.sampled_from(_TARGETS), st.sampled_from(_VERSIONS),
                  st.lists(st.sampled_from(_HEADS), max_size=3), st.just(BODY)),
        st.builds(lambda heads, chunks: _request(b"POST", target, b"HTTP/1.1", [b"Transfer-Encoding: chunked", *heads], chunks),
                  st.lists(st.sampled_from(_HEADS), max_size=1), st.sampled_from(_CHUNKS)),
        st.builds(lambda count: _request(b"GET", b"/livez", b"HTTP/1.1", [b"X-%d: y" % number for number in range(count)], b""), st.integers(0, 400)),
        st.sampled_from((b"\r\n\r\n", b"\0" * 100, b"GET /topics\r\n", b"\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    )
    good = _request(b"POST", target, b"HTTP/1.1", [b"Content-Length: %d" % len(BODY)], BODY)
    return st.one_of(made, st.builds(_changed, made, st.integers(0, 2**16), st.integers(0, 7)), st.builds(_cut, made, st.integers(0, 2**16)),
                     st.builds(lambda one: good + one, made), st.builds(lambda one: one + good, made))


def _request(method: bytes, target: bytes, version: bytes, heads: list[bytes], body: bytes) -> bytes:
    lines = [b" ".join(filter(None, (method, target, version))), b"Host: fuzz", *heads]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _changed(data: bytes, at: int, bit: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1:]


def _cut(data: bytes, at: int) -> bytes:
    return data[: at % len(data)]


