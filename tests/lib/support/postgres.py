"""A real PostgreSQL for tests: made in a folder of its own, as an unprivileged user, on a free loopback port.

It is gone with the session. What is written need not survive a crash of the machine, so that it is fast.
"""

import getpass
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from support.servers import free_port

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
LACKING = (
    "These tests need PostgreSQL's server programs (initdb and postgres), which are neither under /usr/lib/postgresql "
    "nor on PATH. On Debian and Ubuntu: sudo apt-get install postgresql"
)
_names = itertools.count()


class PostgresMissing(Exception):
    """The message says what to install."""


def programs() -> Path:
    """The folder with `initdb` and `postgres`, the newest version's. Raises `PostgresMissing`."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int("0" + p.parent.name.split(".")[0]))
    for place in reversed(places):
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    found = shutil.which("initdb")
    if found is None:
        raise PostgresMissing(LACKING)
    return Path(found).resolve().parent


def _user() -> str:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` here.")


class Postgres:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, name: str) -> str:
        """Of a database, as the setting `database` takes it."""
        return f"postgresql+psycopg://nexus@127.0.0.1:{self.port}/{name}"

    def new(self, template: str | None = None) -> str:
        """A database with a name of its own, empty or a copy of one that nobody is connected to; gives its name."""
        name = f"test_{next(_names)}"
        self.run(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return name

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, statement: str, name: str = "postgres") -> None:
        address = f"host=127.0.0.1 port={self.port} user=nexus dbname={name}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def running(*, durable: bool = False) -> Iterator[Postgres]:
    """Start a server; `durable` as in production, for measurements. Raises `PostgresMissing`."""
    place, user = programs(), _user()
    folder = Path(tempfile.mkdtemp(prefix="nexus-pg-"))
    port = free_port()
    other = user != getpass.getuser()
    as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if other else {}
    options = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(folder)}
    options |= {"max_connections": "60", "shared_buffers": "32MB"} | ({} if durable else FAST)
    server = None
    try:
        if as_user:
            shutil.chown(folder, user)
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": folder, "text": True, **as_user}
        initdb = [str(place / "initdb"), "-D", str(folder / "data"), "-U", "nexus", "-A", "trust", "-E", "UTF8"]
        made = subprocess.run([*initdb, "--no-locale", "--no-sync"], **quiet)
        assert made.returncode == 0, made.stdout
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with open(folder / "log", "wb") as output:
            server = subprocess.Popen(
                [str(place / "postgres"), "-D", str(folder / "data"), *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
                **as_user,
            )
        _wait(server, port, folder / "log")
        yield Postgres(port)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # which PostgreSQL calls a fast shutdown
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, log.read_text(errors="replace")
        try:
            with psycopg.connect(f"host=127.0.0.1 port={port} user=nexus dbname=postgres", connect_timeout=5):
                return
        except psycopg.OperationalError:
            try:
                server.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
    raise AssertionError(f"PostgreSQL did not answer in time:\n{log.read_text(errors='replace')}")
