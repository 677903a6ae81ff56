"""Where a demo lives: its directory, its port, and the box that shows a visitor the way in."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from komainu.core.errors import ConfigError

HOST = "127.0.0.1"
TMPFS = Path("/dev/shm")  # noqa: S108 (a hundred verdicts a second need no disk)
PORTS_TRIED = 50


def way_in(address: str, passwords: Mapping[str, str], settings: Path, took_s: float) -> str:
    """The box that says where to look, how to log in, and how to ask from the command line."""
    lines = [
        f"Komainu watches the lab: {address}",
        "",
        f"log in as  demo     {passwords['demo']}   (may hold, release, break things)",
        f"       or  viewer   {passwords['viewer']}   (may look)",
        "",
        "or ask from another terminal:",
        f"  export KOMAINU_CONFIG={settings}",
        f"  {command()} nodes",
        "",
        f"ready after {took_s:.0f} s; Ctrl-C ends it",
    ]
    width = max(map(len, lines))
    body = "\n".join(f"│ {line:{width}} │" for line in lines)
    return f"\n┌{'─' * (width + 2)}┐\n{body}\n└{'─' * (width + 2)}┘\n"


def free_port(wanted: int) -> int:
    """`wanted`, or the next port that is free on the loopback address."""
    for port in range(wanted, min(wanted + PORTS_TRIED, 65_536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise ConfigError(
        f"the console has no port: {wanted} to {wanted + PORTS_TRIED - 1} are all taken. "
        "Name another with --port."
    )


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A directory for all of it, gone afterwards: in $TMPDIR, else in memory where that is possible."""
    usable = (
        "TMPDIR" not in os.environ
        and TMPFS.is_dir()
        and shutil.disk_usage(TMPFS).free > 500_000_000
    )
    made = Path(tempfile.mkdtemp(prefix="komainu-demo-", dir=TMPFS if usable else None))
    try:
        (made / "nodes").mkdir()
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def command() -> str:
    """How to type `komainu` here: the plain name where it is on the PATH, else where it stands."""
    beside = Path(sys.executable).with_name("komainu")
    found = shutil.which("komainu")
    if found or not beside.exists():
        return "komainu"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)
