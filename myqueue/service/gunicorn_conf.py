"""Runs a service under gunicorn, from code: the process model of all three services.

The listening sockets are opened here, so that a taken port is one clear sentence. Background threads start in the
worker, after the fork. A stopping worker tells its long waits first, so that a clean stop takes a second.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from ..errors import ConfigurationError, MyQueueError
from . import faults, logs
from .auth import check_exposure, read_secret
from .gunicorn_worker import bounded
from .limits import Limits

if TYPE_CHECKING:
    from flask import Flask

_LIMITS = Limits()
KEEPALIVE_SECONDS = 75  # pooled clients keep their connections
GRACEFUL_SECONDS = 8
BACKLOG = 1_024
# For the file whose time tells the arbiter that a worker lives: on a disk the main loop would wait for others' syncs.
MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - gunicorn makes the file by mkstemp and unlinks it
OWN_FILES = 256  # that a worker has open beside its connections: listeners, database, log, peers


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from None
    listener.set_inheritable(True)
    return listener


class _Server(BaseApplication):  # type: ignore[misc]
    def __init__(self, make_app: Callable[[], Flask], options: dict[str, Any]) -> None:
        self._make_app, self._options = make_app, options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """An app that cannot be made ends the node with one sentence, like everything else that is wrong at the start.

        What is loaded here stays: the garbage collector does not look at it, neither meanwhile, which is a fifth of a start's work, nor ever after.
        """
        gc.disable()
        try:
            return self._make_app()
        except MyQueueError as error:
            print(f"cannot start: {error.message}", file=sys.stderr)
            sys.exit(Arbiter.APP_LOAD_ERROR)
        finally:
            gc.freeze()
            gc.enable()


def _post_worker_init(worker: Any) -> None:
    lifecycle = worker.wsgi.extensions["lifecycle"]
    lifecycle.start(end=lambda: os.kill(os.getpid(), signal.SIGTERM))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        before = signal.getsignal(number)

        def handler(received: int, frame: Any, before: Any = before) -> None:
            if not lifecycle.may_end():
                return
            lifecycle.stopping.set()
            if callable(before):
                before(received, frame)

        signal.signal(number, handler)


def _worker_exit(_server: Any, worker: Any) -> None:
    app = getattr(worker, "wsgi", None)  # not there when the app could not be made
    if app is not None:
        app.extensions["lifecycle"].stop()


def _child_exit(_server: Any, worker: Any) -> None:
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(worker.pid)


def _allow_files(count: int) -> None:
    """Let this process and its workers open so many files. Raises ConfigurationError where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ConfigurationError(f"a worker may have {count} files and connections open, and the system allows {hard}: raise that (ulimit -n, "
                                 "LimitNOFILE), or lower --connections-max")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def serve(node: str, make_app: Callable[[], Flask], *, host: str, ports: Sequence[int], workers: int, threads: int, limits: Limits = _LIMITS,
          log_level: str = "info", token: str | None = None, secret_file: str | None = None) -> None:
    """Serve until SIGTERM or SIGINT; does not return.

    ``make_app`` is called in each worker: it opens the worker's own connections. A start that cannot work ends with
    one sentence on standard error and exit code 1.
    """
    logs.configure(node, log_level)
    metrics_dir = None
    try:
        faults.arm(os.environ)
        _allow_files(limits.connections_max + threads + OWN_FILES)  # a request in hand may have a connection to another node
        check_exposure(host, token=token, secret=read_secret(secret_file) if secret_file else None)
        listeners = [_listen(host, port) for port in ports]
    except ConfigurationError as error:
        sys.exit(f"{node}: {error.message}")
    if workers > 1:
        metrics_dir = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="myqueue-metrics-")

    def on_exit(_server: Any) -> None:
        if metrics_dir:
            shutil.rmtree(metrics_dir, ignore_errors=True)

    _Server(make_app, {
        "bind": [f"fd://{listener.detach()}" for listener in listeners],  # gunicorn owns them from here
        "workers": workers, "threads": threads, "worker_class": bounded(limits), "worker_connections": limits.connections_max,
        "keepalive": KEEPALIVE_SECONDS, "worker_tmp_dir": MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None,
        # No header of a client may change what path or scheme the app sees; the longest request line that gunicorn can bound.
        # Since there is none, nobody's address needs to be looked at ("*").
        "forwarder_headers": "", "secure_scheme_headers": {}, "forwarded_allow_ips": "*", "limit_request_line": 8_190,
        "timeout": 60, "graceful_timeout": GRACEFUL_SECONDS, "control_socket_disable": True, "accesslog": None,
        "proc_name": f"myqueue {node}", "logger_class": "myqueue.service.gunicorn_log.QuietLogger",
        "post_worker_init": _post_worker_init, "worker_exit": _worker_exit, "child_exit": _child_exit, "on_exit": on_exit,
    }).run()
