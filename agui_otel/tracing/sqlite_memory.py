"""Thread memory in an SQLite file, for the processes of one machine (trace model: thread memory).

A change is read, applied and written in one transaction that nobody else can start (BEGIN IMMEDIATE), in a
database with a write-ahead log, so that readers never wait for a writer. Beside the threads stands a row for
each open interrupt, and triggers that count them by reason: the figure is read off, however many there are.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from agui_otel.protocol.thread import ThreadChange, ThreadRecord, decode
from agui_otel.tracing.memory import DEFAULT_SIZE, DEFAULT_TIMEOUT, DEFAULT_TTL, Figure, Waiting
from agui_otel.tracing.runs import SeenRuns
from agui_otel.tracing.stored import as_bytes, as_text, expiry_of, is_gone, open_in

APPLICATION = 0x41475549
"""The `application_id` of such a file: what SQLite offers so that a program knows its own ("AGUI")."""
SCHEMA_VERSION = 1
PURGED_AT_ONCE = 64
"""Expired rows that one write takes away: more than it adds, so that they never pile up."""
PURGED_FOR_FIGURE = 50_000

_SCHEMA = """
CREATE TABLE threads (thread BLOB PRIMARY KEY, record BLOB NOT NULL, expires REAL NOT NULL, since REAL);
CREATE INDEX threads_by_expiry ON threads (expires);
CREATE INDEX threads_by_wait ON threads (since) WHERE since IS NOT NULL;
CREATE TABLE interrupts (
    thread BLOB NOT NULL, id BLOB NOT NULL, reason BLOB NOT NULL, since REAL NOT NULL, expires REAL NOT NULL,
    PRIMARY KEY (thread, id)
) WITHOUT ROWID;
CREATE INDEX interrupts_by_age ON interrupts (reason, since);
CREATE INDEX interrupts_by_expiry ON interrupts (expires);
CREATE TABLE counts (reason BLOB PRIMARY KEY, open INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE total (threads INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TRIGGER interrupt_in AFTER INSERT ON interrupts BEGIN
    INSERT INTO counts VALUES (new.reason, 1) ON CONFLICT (reason) DO UPDATE SET open = open + 1;
END;
CREATE TRIGGER interrupt_out AFTER DELETE ON interrupts BEGIN
    UPDATE counts SET open = open - 1 WHERE reason = old.reason;
    DELETE FROM counts WHERE reason = old.reason AND open <= 0;
END;
CREATE TRIGGER thread_in AFTER INSERT ON threads BEGIN UPDATE total SET threads = threads + 1; END;
CREATE TRIGGER thread_out AFTER DELETE ON threads BEGIN
    UPDATE total SET threads = threads - 1;
    DELETE FROM interrupts WHERE thread = old.thread;
END;
"""


class SQLiteMemory:
    """Threads in the file `path`, which is made where it is not there; its directory has to be.

    A thread is forgotten `ttl` seconds after its last write (a seventh of that where nothing waits in it), or
    when it is the one with the least time left of more than `size` threads. A lock that another process holds
    is waited for `timeout` seconds. `clock` gives seconds since the epoch. `read`, `write` and `waiting`
    raise `sqlite3.Error` or `OSError`.
    """

    scope: Literal["process", "shared"] = "shared"
    immediate = False

    def __init__(
        self,
        path: Path,
        *,
        ttl: float = DEFAULT_TTL,
        size: int = DEFAULT_SIZE,
        timeout: float = DEFAULT_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.seen = SeenRuns()
        self.path = path.absolute()
        self._ttl = ttl
        self._size = size
        self._timeout = timeout
        self._clock = clock
        self._local = threading.local()
        self._all: list[_Connection] = []

    def read(self, thread_id: str, notes: list[str] | None = None, /) -> ThreadRecord | None:
        """The thread's record, or None."""
        with self._connected() as connection:
            row = _row(connection, as_bytes(thread_id), self._clock())
        return None if row is None else decode(row[0], [] if notes is None else notes)

    def write(self, change: ThreadChange) -> int:
        """Apply a run's change to what is stored now, in one transaction."""
        thread = as_bytes(change.thread_id)
        with self._connected() as connection, _transaction(connection):
            now = self._clock()
            _purge(connection, now, PURGED_AT_ONCE)
            row = _row(connection, thread, now)
            record = change.apply(None if row is None else decode(row[0], []))
            if is_gone(record):
                connection.execute("DELETE FROM threads WHERE thread = ?", (thread,))
                return 0
            self._put(connection, thread, record, now)
            return self._make_room(connection)

    def waiting(self, limit: int) -> Iterator[ThreadRecord]:
        """Threads in which something waits."""
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT record FROM threads WHERE since IS NOT NULL AND expires > ? ORDER BY since LIMIT ?",
                (self._clock(), limit),
            ).fetchall()
        return (record for (data,) in rows if (record := decode(data, [])) is not None)

    def figure(self) -> Figure | None:
        """The open interrupts of all threads; None where the file cannot be used."""
        try:
            with self._connected() as connection:
                now = self._clock()
                due = "SELECT 1 FROM interrupts WHERE expires <= ? LIMIT 1"
                if connection.execute(due, (now,)).fetchone() is not None:
                    with _transaction(connection):
                        _purge(connection, now, PURGED_FOR_FIGURE)
                oldest = "SELECT MIN(since) FROM interrupts WHERE reason = counts.reason"
                rows = connection.execute(f"SELECT reason, open, ({oldest}) FROM counts").fetchall()
        except (sqlite3.Error, OSError):
            return None
        return Figure({as_text(reason): Waiting(count, since) for reason, count, since in rows if count > 0})

    def close(self) -> None:
        """Close the connections of all threads; a later call opens them again."""
        connections, self._all = self._all, []
        for connection in connections:
            connection.close()
        self._local = threading.local()

    def _put(self, connection: sqlite3.Connection, thread: bytes, record: ThreadRecord, now: float) -> None:
        expires = expiry_of(record, self._ttl, now)
        since = None if record.empty else record.since()
        connection.execute(
            "INSERT INTO threads VALUES (?, ?, ?, ?) ON CONFLICT (thread) DO UPDATE SET "
            "record = excluded.record, expires = excluded.expires, since = excluded.since",
            (thread, record.encode(), expires, since),
        )
        connection.execute("DELETE FROM interrupts WHERE thread = ?", (thread,))
        rows = [
            (thread, as_bytes(each.id), as_bytes(each.reason), each.since, until)
            for each, until in open_in(record, expires, now)
        ]
        connection.executemany("INSERT INTO interrupts VALUES (?, ?, ?, ?, ?)", rows)

    def _make_room(self, connection: sqlite3.Connection) -> int:
        surplus: int = connection.execute("SELECT threads FROM total").fetchone()[0] - self._size
        if surplus > 0:
            connection.execute(
                "DELETE FROM threads WHERE thread IN (SELECT thread FROM threads ORDER BY expires LIMIT ?)", (surplus,)
            )
        return max(surplus, 0)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection to the file that is there now. After an error it is not used again."""
        kept: _Connection | None = getattr(self._local, "connection", None)
        if kept is not None and not kept.leads_to(self.path):
            self._forget(kept)
            kept = None
        if kept is None:
            kept = self._local.connection = _Connection(self.path, self._timeout)
            self._all.append(kept)
        try:
            yield kept.connection
        except BaseException:
            self._forget(kept)
            raise

    def _forget(self, kept: _Connection) -> None:
        self._local.connection = None
        with contextlib.suppress(ValueError):
            self._all.remove(kept)
        kept.close()


class _Connection:
    """A connection, the process that opened it and the file that it leads to."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._process = os.getpid()
        self.connection, found = _open(path, timeout)
        self._file = found.st_dev, found.st_ino
        self.close = weakref.finalize(self, _close, self.connection, self._process)
        """Close it, once. It happens by itself when nothing holds this any more, but not at the exit, which writes."""
        self.close.atexit = False

    def leads_to(self, path: Path) -> bool:
        """Whether it is this process's, and the file is still the one that was opened."""
        try:
            found = path.stat()
        except OSError:
            return False
        return self._process == os.getpid() and self._file == (found.st_dev, found.st_ino)


_inherited: list[sqlite3.Connection] = []
"""Connections of a process that forked this one: Python would close each with the last reference to it."""


def _close(connection: sqlite3.Connection, process: int) -> None:
    """Close what `process` opened. A forked child keeps it as it is: SQLite has it neither used nor closed there."""
    if process != os.getpid():
        _inherited.append(connection)
        return
    with contextlib.suppress(sqlite3.Error):
        connection.close()


def _open(path: Path, timeout: float) -> tuple[sqlite3.Connection, os.stat_result]:
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        _use_log(connection, time.monotonic() + timeout)
        connection.execute("PRAGMA synchronous = NORMAL")
        if _identity(connection) != (APPLICATION, SCHEMA_VERSION):
            with _transaction(connection):  # another process may be making the tables just now
                if not _is_ours(connection, path):
                    for statement in _statements(_SCHEMA):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection, path.stat()
    except BaseException:
        connection.close()
        raise


def _use_log(connection: sqlite3.Connection, due: float) -> None:
    """Have a write-ahead log. SQLite does not wait by itself where another process changes the mode just now."""
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= due:
                raise
            time.sleep(0.005)


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has our tables; false where it is empty. Raises where it is something else's.

    In a transaction: the answers have to go together.
    """
    application, version = _identity(connection)
    if (application, version) == (APPLICATION, SCHEMA_VERSION):
        return True
    if application == APPLICATION:
        raise sqlite3.DatabaseError(f"{path} has the thread memory of another version ({version})")
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise sqlite3.DatabaseError(f"{path} is a database of something else")
    return False


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Read and write as the only writer; nothing of it stays where it fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _row(connection: sqlite3.Connection, thread: bytes, now: float) -> tuple[bytes] | None:
    found: tuple[bytes] | None = connection.execute(
        "SELECT record FROM threads WHERE thread = ? AND expires > ?", (thread, now)
    ).fetchone()
    return found


def _purge(connection: sqlite3.Connection, now: float, limit: int) -> None:
    """Take away what has expired."""
    for table, key in (("threads", "thread"), ("interrupts", "thread, id")):
        if connection.execute(f"SELECT 1 FROM {table} WHERE expires <= ? LIMIT 1", (now,)).fetchone() is None:
            continue
        connection.execute(
            f"DELETE FROM {table} WHERE ({key}) IN "
            f"(SELECT {key} FROM {table} WHERE expires <= ? ORDER BY expires LIMIT ?)",
            (now, limit),
        )
