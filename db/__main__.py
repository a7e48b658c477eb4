"""``python -m db server|migrate|status|create|drop``: the database by hand, and for the supervisor. Secrets come by environment or file."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from myqueue.errors import ConfigurationError, MyQueueError

DATABASE_URL = "MYQUEUE_DB_DATABASE_URL"
ENDING_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGQUIT
ADMIN_URL = "MYQUEUE_DB_ADMIN_URL"
ADMIN_PASSWORD_FILE = "MYQUEUE_DB_ADMIN_PASSWORD_FILE"  # noqa: S105
OWNER_PASSWORD = "MYQUEUE_DB_OWNER_PASSWORD"  # noqa: S105 (a variable's name)
READER_PASSWORD = "MYQUEUE_DB_READER_PASSWORD"  # noqa: S105


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Exit code 0 done, 1 failed, 2 usage."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace, Mapping[str, str]], int] = arguments.command
    try:
        return command(arguments, environment)
    except MyQueueError as error:
        print(f"python -m db: {error.message}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m db", description="PostgreSQL for MyQueue: run a server, make databases, bring them up to date.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    server = commands.add_parser("server", help="run PostgreSQL in the foreground until SIGINT, SIGTERM or (without a last checkpoint) SIGQUIT")
    server.set_defaults(command=_server)
    server.add_argument("--data", type=Path, required=True, help="data folder, made if it is not there")
    server.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    server.add_argument("--log-file", type=Path, help="where the server's output goes (default: <data>.log)")
    server.add_argument("--ready-file", type=Path, help='written when it takes connections: {"pid", "port"}; removed at the end')
    server.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="a server setting; may be repeated")

    for name, function, text in (("migrate", _migrate, "bring a database up to date"), ("status", _status, "say which migrations a database has")):
        command = commands.add_parser(name, help=text, description=f"{text}; the database is named by {DATABASE_URL}")
        command.set_defaults(command=function)
        command.add_argument("--kind", required=True, choices=("broker", "manager"))

    for name, function, text in (("create", _create, "make a database per node, an owner and a read-only login"),
                                 ("drop", _drop, "remove the databases and roles that create made, with all data")):
        command = commands.add_parser(name, help=text, description=f"{text}. {ADMIN_URL} names the server and a role that may do this; "
                                      f"its password may come by {ADMIN_PASSWORD_FILE}, the new ones come by {OWNER_PASSWORD} "
                                      f"and {READER_PASSWORD}. Repeating it changes nothing.")
        command.set_defaults(command=function)
        command.add_argument("--prefix", required=True, help="begins the names made: PREFIX_owner, PREFIX_reader, PREFIX_broker_1 …")
        command.add_argument("--owner", metavar="LOGIN", help="the owner's login, where it is not PREFIX_owner: a login per node")
        command.add_argument("--nodes", required=True, metavar="NODE,…", type=lambda text: tuple(text.split(",")), help="broker-1,manager-1,…")
    return parser


def _server(arguments: argparse.Namespace, _environment: Mapping[str, str]) -> int:
    from .local_postgres import LocalPostgres  # each command loads what it needs: this one needs no driver

    settings = dict(pair.partition("=")[::2] for pair in arguments.settings)
    if not all(settings.values()):
        raise ConfigurationError("--set wants NAME=VALUE")

    immediate = False

    def end(number: int, _frame: object) -> None:
        nonlocal immediate
        immediate = number == signal.SIGQUIT
        raise SystemExit(0)

    for number in ENDING_SIGNALS:
        signal.signal(number, end)
    server = LocalPostgres(arguments.data, port=arguments.port, settings=settings, log_file=arguments.log_file)
    try:
        server.start()
        if arguments.ready_file:
            _write_whole(arguments.ready_file, json.dumps({"pid": server.pid, "port": server.port}))
        print(f"PostgreSQL is ready on 127.0.0.1:{server.port}", flush=True)
        code = server.wait()
    finally:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # stopping is bounded: a second signal must not cut it short
        server.stop(immediate=immediate)
        if arguments.ready_file:
            arguments.ready_file.unlink(missing_ok=True)
    raise MyQueueError(f"PostgreSQL ended by itself with code {code} (log: {server.log_file})")


def _write_whole(path: Path, text: str) -> None:
    making = path.with_name(path.name + ".new")
    making.write_text(text)
    making.replace(path)


def _migrate(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from .engine import make_engine
    from .migrate import migrate

    engine = make_engine(_needed(environment, DATABASE_URL), application_name="myqueue migrate", pool_size=1)
    try:
        versions = migrate(engine, arguments.kind)
    finally:
        engine.dispose()
    print(f"applied {', '.join(f'{version:04}' for version in versions)}" if versions else "the database is up to date")
    return 0


def _status(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from .engine import make_engine
    from .migrate import status

    engine = make_engine(_needed(environment, DATABASE_URL), application_name="myqueue migrate", pool_size=1)
    try:
        applied, todo = status(engine, arguments.kind)
    finally:
        engine.dispose()
    for migration in applied:
        print(f"{migration.version:04}_{migration.name}: applied")
    for migration in todo:
        print(f"{migration.version:04}_{migration.name}: to do")
    print("the database is up to date" if not todo else f"{len(todo)} to do: python -m db migrate --kind {arguments.kind}")
    return 0


def _create(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from .provision import Names, create

    names = Names(arguments.prefix, arguments.nodes, arguments.owner)
    create(_admin_url(environment), names,
           owner_password=_needed(environment, OWNER_PASSWORD), reader_password=_needed(environment, READER_PASSWORD))
    print(f"{len(names.nodes)} databases are there, owned by {names.owner}, readable by {names.reader}")
    return 0


def _drop(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from .provision import Names, drop

    names = Names(arguments.prefix, arguments.nodes, arguments.owner)
    drop(_admin_url(environment), names)
    print(f"{len(names.nodes)} databases, {names.owner} and {names.reader} are gone")
    return 0


def _admin_url(environment: Mapping[str, str]) -> str:
    url = _needed(environment, ADMIN_URL)
    if not environment.get(ADMIN_PASSWORD_FILE):
        return url
    from .engine import parse_url

    try:
        password = Path(environment[ADMIN_PASSWORD_FILE]).read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"{ADMIN_PASSWORD_FILE}: cannot read {error.filename}: {error.strerror}") from None
    return parse_url(url).set(password=password).render_as_string(hide_password=False)


def _needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise ConfigurationError(f"{name} is needed in the environment")
    return value


if __name__ == "__main__":
    sys.exit(main())
