"""A large request's body in one piece, read where it is to stay.

gunicorn's reader is one of many small pieces: what the socket gives is copied into its buffer and from there into the body's, both of which
grow as it comes. Here the kernel writes it where it stays, in as few calls as it takes: each call lets go of the interpreter, and
waits to have it back.
"""

from __future__ import annotations

from wsgiref.types import WSGIEnvironment

from gunicorn.http.body import Body, LengthReader

from .client_socket import ClientSocket


def whole_body(environ: WSGIEnvironment, length: int) -> bytes | bytearray:
    """The body of a request whose length is known; shorter where the client ends before.

    Raises:
        SlowRequestError: it did not arrive in time. The connection is of no more use.
    """
    body, sock = environ["wsgi.input"], environ.get("gunicorn.socket")
    if not isinstance(body, Body) or not isinstance(body.reader, LengthReader) or not isinstance(sock, ClientSocket):
        return body.read(length)
    read_ahead = body.reader.unreader.take_buffered()
    if body.buf.tell() or body.reader.length != length or len(read_ahead) > length:  # somebody has read of it, or there is more behind it
        body.reader.unreader.unread(read_ahead)
        return body.read(length)
    whole = bytearray(length)
    whole[:len(read_ahead)] = read_ahead
    body.failed, body.reader.length = True, 0  # until it is there, nobody knows where the next request begins
    with memoryview(whole) as view, view[len(read_ahead):] as rest:
        missing = sock.fill(rest)
    body.failed = bool(missing)
    if missing:
        del whole[length - missing:]
    return whole
