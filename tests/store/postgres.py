"""A private PostgreSQL for tests: own directory, unix socket only, ended by its own pid."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import psycopg

BIN = Path("/usr/lib/postgresql/15/bin")
MISSING = "PostgreSQL 15 is missing. Install it with: apt-get install -y postgresql-15"


class PrivatePostgres:
    """One server; `url(name)` is an empty database of that name."""

    def __init__(self) -> None:
        if not (BIN / "postgres").exists():
            raise RuntimeError(MISSING)
        self.home = Path(tempfile.mkdtemp(prefix="komainu-pg-"))
        self._who = self._unprivileged()
        self._run("initdb", "-D", str(self.home / "d"), "-U", "komainu", "-A", "trust", "-N")
        with (self.home / "log").open("wb") as said:
            self._server = self._start(said)
        self._wait()

    def _start(self, said: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                BIN / "postgres",
                *("-D", str(self.home / "d"), "-k", str(self.home)),
                *(
                    "-c",
                    "listen_addresses=",
                    "-c",
                    "fsync=off",
                    "-c",
                    "synchronous_commit=off",
                    "-c",
                    "max_connections=200",
                ),
            ],
            stdout=subprocess.DEVNULL,
            stderr=said,
            **self._who,
        )

    def _unprivileged(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        name = "postgres" if any(p.pw_name == "postgres" for p in pwd.getpwall()) else "nobody"
        shutil.chown(self.home, name)
        return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}

    def _run(self, tool: str, *args: str) -> None:
        subprocess.run([BIN / tool, *args], check=True, capture_output=True, cwd="/", **self._who)

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ready = subprocess.run(
                [BIN / "pg_isready", "-h", str(self.home), "-q"], check=False, capture_output=True
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL did not start: {(self.home / 'log').read_text()[-2000:]}")

    def url(self, name: str) -> str:
        """An empty schema stands for an empty database: making one takes milliseconds."""
        with psycopg.connect(f"host={self.home} user=komainu dbname=postgres") as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        path = f"options=-csearch_path%3D{name}"
        return f"postgresql+psycopg://komainu@/postgres?host={self.home}&{path}"

    def close(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        shutil.rmtree(self.home, ignore_errors=True)
