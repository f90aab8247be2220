"""A Docker engine of the test's own: in a network namespace and a folder of its own, gone when the test is over.

No image can be counted on, so the compose file's images are stood in for: each has the name and tag that the file
asks for, is empty but for a few folders, and gets this machine's programs mounted.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import monitoring, services
from tests.support.collectors import binary

POSTGRES = Path("/usr/lib/postgresql")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOBODY, _POSTGRES = 65534, 999
_USERS = f"root:x:0:0:root:/root:/bin/sh\npostgres:x:{_POSTGRES}:{_POSTGRES}::/tmp:/bin/sh\n"
_START_POSTGRES = """\
#!/bin/sh
set -e
user="setpriv --reuid=999 --regid=999 --clear-groups"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" >/tmp/password
    chown 999 /tmp/password
    $user initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    printf 'CREATE DATABASE "%s";' "$POSTGRES_DB" | $user postgres --single -D "$PGDATA" postgres
fi
exec $user postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
"""


class Engine:
    """A Docker daemon: its socket, and the namespace in which its ports are published."""

    def __init__(self, process: subprocess.Popen[bytes], socket: str) -> None:
        self._process = process
        self.environment = {**os.environ, "DOCKER_HOST": socket}

    def docker(self, *arguments: str, given: bytes | None = None) -> None:
        """Run the client."""
        subprocess.run(["docker", *arguments], env=self.environment, input=given, check=True, capture_output=True)

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the published ports are."""
        namespace = f"--net=/proc/{self._process.pid}/ns/net"
        return subprocess.run(["nsenter", namespace, *command], capture_output=True, text=True, check=False)


@contextmanager
def engine(directory: Path) -> Iterator[Engine]:
    """Start a daemon; the test is skipped, with the daemon's words, where this machine does not let it run."""
    monitoring.require("docker", "dockerd", "nsenter", "unshare", "ip")
    services.require(os.geteuid() == 0, "root")
    socket = f"unix://{directory}/docker.sock"
    daemon = (
        f"exec dockerd --data-root {directory}/data --exec-root {directory}/exec --pidfile {directory}/pid -H {socket}"
    )
    with (directory / "dockerd.log").open("wb") as log:
        command = ["unshare", "--net", "sh", "-c", f"ip link set lo up && {daemon}"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    made = Engine(process, socket)
    try:
        _wait_until_up(made, process, directory / "dockerd.log")
        yield made
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(directory / "data", ignore_errors=True)


def _wait_until_up(made: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while subprocess.run(["docker", "info"], env=made.environment, capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > until:
            pytest.skip(f"no Docker engine can be started here: {log.read_text()[-600:]}")
        time.sleep(0.2)


def import_images(made: Engine, names: Iterable[str]) -> None:
    """Give the engine an image of each name."""
    image = _image()
    for name in sorted(set(names)):
        made.docker(
            "import", "-c", f"ENV PATH={_postgres()}:{_PATH}", "-c", "ENV PGDATA=/pgdata/data", "-", name, given=image
        )


def stand_ins() -> dict[str, Any]:
    """What is laid over the compose file: this machine's programs as each service's own."""
    usr = "/usr:/usr:ro"
    python = [f"{folder}:{folder}:ro" for folder in {sys.prefix, sys.base_prefix} if not folder.startswith("/usr")]
    phoenix = {
        "entrypoint": [sys.executable, "-m", "phoenix.server.main", "serve"],
        "environment": {"PHOENIX_WORKING_DIR": "/tmp", "HOME": "/tmp"},
        "volumes": [usr, *python],
    }
    nobody = {"user": str(_NOBODY), "volumes": [usr]}
    services_: dict[str, Any] = {
        "postgres": {"entrypoint": ["/start-postgres"], "volumes": [usr, "pgdata:/pgdata"]},
        "phoenix": phoenix,
        "collector": {"entrypoint": ["/otelcol-contrib"], "volumes": [f"{binary()}:/otelcol-contrib:ro"]},
        "collector-health": {"volumes": [usr]},
        # Before Prometheus 3 this is not the default.
        "prometheus": {**nobody, "entrypoint": ["/usr/bin/prometheus", "--enable-feature=expand-external-labels"]},
        "alertmanager": {**nobody, "entrypoint": ["/usr/bin/prometheus-alertmanager"]},
    }
    return {"services": services_, "volumes": {"pgdata": {}}}


def written(directory: Path) -> Path:
    """The file with `stand_ins`."""
    path = directory / "stand-ins.json"
    path.write_text(json.dumps(stand_ins()))
    return path


def _postgres() -> Path:
    found = sorted(POSTGRES.glob("*/bin"))
    services.require(bool(found), "PostgreSQL")
    return found[-1]


def _image() -> bytes:
    """A file system without a program."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("dev", "etc", "opt", "proc", "root", "srv", "sys", "usr", "var", "var/lib", "run"):
            _add(archive, name, tarfile.DIRTYPE)
        _add(archive, "tmp", tarfile.DIRTYPE, mode=0o1777)
        for name, owner in (("prometheus", _NOBODY), ("alertmanager", _NOBODY), ("pgdata", _POSTGRES)):
            _add(archive, name, tarfile.DIRTYPE, owner=owner)
        _add(archive, "run/postgresql", tarfile.DIRTYPE, owner=_POSTGRES)
        _add(archive, "var/run", tarfile.SYMTYPE, target="../run")
        for name in ("bin", "lib", "lib64", "sbin"):
            _add(archive, name, tarfile.SYMTYPE, target=f"usr/{name}")
        _add(archive, "etc/passwd", text=_USERS)
        _add(archive, "etc/group", text="root:x:0:\n")
        _add(archive, "start-postgres", text=_START_POSTGRES, mode=0o755)
    return made.getvalue()


def _add(
    archive: tarfile.TarFile,
    name: str,
    kind: bytes = tarfile.REGTYPE,
    *,
    owner: int = 0,
    mode: int = 0o755,
    target: str = "",
    text: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(text)
    entry.uid = entry.gid = owner
    archive.addfile(entry, io.BytesIO(text.encode()))
