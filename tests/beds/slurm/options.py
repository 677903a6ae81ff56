"""What a bed is made of, and where its parts lie."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import msgspec
from tests.beds.packages import BedError

_SOCKET_MAX = 100  # sun_path holds 108 bytes; munged appends a lock's name


class BedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The choices a test has."""

    nodes: int = 8
    gpus: int = 8
    cluster: str = "bed"
    accounting: bool = True
    """With MariaDB and slurmdbd."""
    prolog: str = ""
    """Program run as Prolog on every node, with KOMAINU_GATE_CONF of that node; empty: none."""
    epilog: str = ""
    healthcheck: str = ""
    healthcheck_interval_s: int = 5
    nohold_on_prolog_fail: bool = False
    cred_expire_s: int = 5
    """Also how long a requeued job waits; Slurm's own default of 120 s would make tests slow."""
    slurmd_timeout_s: int = 10
    debug: str = "info"


class Layout(msgspec.Struct, frozen=True):
    """The bed's directory."""

    root: Path

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.root / "munge" / "s"

    @property
    def mysql_socket(self) -> Path:
        return self.root / "mysql" / "s"

    def node(self, name: str) -> Path:
        """What belongs to one node: its gate.conf, run and state directories, failure flags."""
        return self.root / "nodes" / name

    def make(self, nodes: tuple[str, ...]) -> None:
        """Create all directories."""
        if len(str(self.munge_socket)) > _SOCKET_MAX:
            raise BedError(f"{self.root} is too long a path for sockets; use one under /tmp")
        for part in ("etc", "run", "state", "log", "munge", "mysql", "hooks", "dev", "jobs"):
            (self.root / part).mkdir(parents=True, exist_ok=True)
        for name in nodes:
            (self.root / "spool" / name).mkdir(parents=True, exist_ok=True)
            self.node(name).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        (self.root / "munge").chmod(0o755)


class Ports(msgspec.Struct, frozen=True):
    """The bed's TCP ports."""

    ctld: int
    dbd: int
    mysql: int
    nodes: tuple[int, ...]


class Bedding(msgspec.Struct, frozen=True):
    """Everything another run needs to know of a bed; kept in bed.json."""

    options: BedOptions
    ports: Ports
    user: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.options.nodes + 1))


def daemon_user() -> str:
    """Root when we are root, else ourselves: both work."""
    return "root" if os.geteuid() == 0 else getpass.getuser()
