"""Thread memories to test with: one in the process, one in a file, one in a Redis that is started here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.services import require

KINDS = ("memory", "sqlite", "redis")
SHARED = ("sqlite", "redis")


class RedisServer:
    """A redis-server on this machine, without a file of its own. A context manager that ends it.

    It can be killed and started again at the same port, empty, and stopped so that it does not answer.
    """

    def __init__(self) -> None:
        require(shutil.which("redis-server") is not None, "redis-server")
        self._directory = tempfile.mkdtemp(prefix="agui-otel-redis-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._directory,
             "--save", "", "--appendonly", "no", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended while it started"
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Let it answer nobody, until `go_on`. Connections are accepted still."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def ask(self, *words: str) -> str:
        """Send a command that redis-cli would; the raw answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65536).decode()

    def _answers(self) -> bool:
        try:
            return self.ask("PING") == "+PONG\r\n"
        except OSError:
            return False

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.go_on()
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def opened(kind: str, directory: Path, redis: RedisServer | None, **options: Any) -> Iterator[ThreadMemory]:
    """An empty store of this kind. `redis`: where one is, the server that is to be used."""
    memory: ThreadMemory
    if kind == "memory":
        memory = InProcessMemory(**options)
    elif kind == "sqlite":
        memory = SQLiteMemory(directory / "threads.db", timeout=5.0, **options)
    else:
        from agui_otel.tracing.redis_memory import RedisMemory

        assert redis is not None
        redis.ask("FLUSHALL")
        memory = RedisMemory(redis.url, timeout=5.0, **options)
    try:
        yield memory
    finally:
        memory.close()


def open_files(directory: Path) -> set[str]:
    """The descriptors of this process that lead to files of `directory`."""
    return {
        each.name for each in Path("/proc/self/fd").iterdir() if each.exists() and directory in each.resolve().parents
    }


def in_processes(count: int, work: Callable[[int], None]) -> list[int]:
    """Do `work(number)` in so many forked processes at once; their exit statuses."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(number)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
