"""A real Slurm cluster in one directory, on free ports, with its own munge: several run at once.

Up takes about 5 s for 8 nodes. Everything started is stopped by recorded PID and start time; job
steps, which outlive slurmd, by the files they hold open below the bed's directory.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

import msgspec
from tests.beds.packages import BedError, require, search_path
from tests.beds.processes import Ledger, family, free_ports, holders, kill, until
from tests.beds.slurm import database, files
from tests.beds.slurm.options import Bedding, BedOptions, Layout, Ports, daemon_user

_CORE = ("munged", "munge", "slurmctld", "slurmd", "scontrol", "squeue", "sbatch", "scancel")
_ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb", "mariadb-install-db")


class SlurmBed:
    """One bed. `up` makes it; the constructor finds one that exists."""

    def __init__(self, root: Path) -> None:
        self.at = Layout(root.resolve())
        self._ledger = Ledger(self.at.root)
        known = self.at.root / "bed.json"
        if not known.exists():
            raise BedError(f"{root} holds no bed: bed.json is missing. Bring one up first.")
        self._bedding = msgspec.json.decode(known.read_bytes(), type=Bedding)

    @classmethod
    def up(cls, root: Path, options: BedOptions) -> Self:
        """Bring up a bed in `root`; returns when every node is idle."""
        require((*_CORE, *(_ACCOUNTING if options.accounting else ())))
        if (root / "bed.json").exists():
            raise BedError(
                f"{root} already holds a bed. Take it down and remove it, or use another."
            )
        ctld, dbd, mysql, *nodes = free_ports(3 + options.nodes)
        bedding = Bedding(options, Ports(ctld, dbd, mysql, tuple(nodes)), daemon_user())
        at = Layout(root.resolve())
        at.make(bedding.names)
        (at.root / "bed.json").write_bytes(msgspec.json.encode(bedding))
        bed = cls(root)
        try:
            bed._start()
        except BaseException:
            bed.down()
            raise
        return bed

    @property
    def names(self) -> tuple[str, ...]:
        return self._bedding.names

    @property
    def options(self) -> BedOptions:
        return self._bedding.options

    @property
    def env(self) -> dict[str, str]:
        """Environment in which Slurm's commands talk to this bed and no other."""
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        return outer | {
            "PATH": search_path(),
            "SLURM_CONF": str(self.at.conf),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *argv: str, check: bool = True, within_s: float = 30) -> str:
        """Run one of Slurm's commands and return what it printed."""
        done = subprocess.run(
            argv,
            env=self.env,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=within_s,
            cwd=self.at.root / "jobs",
        )
        if check and done.returncode:
            raise BedError(f"{argv[0]} exited {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────

    def start_node(self, name: str) -> None:
        argv = ["slurmd", "-D", "-N", name, "-f", str(self.at.conf)]
        self._ledger.start(f"slurmd.{name}", argv, self.env)

    def kill_node(self, name: str) -> None:
        """The node dies: SIGKILL of its slurmd. What ran there goes on running, as in a hang."""
        self._ledger.stop(f"slurmd.{name}", sign=signal.SIGKILL)

    def node_alive(self, name: str) -> bool:
        return self._ledger.running(f"slurmd.{name}")

    def set_failing(self, kind: str, name: str, *, failing: bool) -> None:
        """Make the `prolog`, `epilog` or `healthcheck` fail on one node, or work again."""
        flag = self.at.node(name) / f"fail-{kind}"
        if failing:
            flag.touch()
        else:
            flag.unlink(missing_ok=True)

    def all_idle(self) -> bool:
        shown = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).split()
        return shown.count("idle") == len(self.names)

    # ── up and down ──────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._write_files()
        self._start_munge()
        if self.options.accounting:
            database.start(self._ledger, self._bedding, self.at, self.env)
            self._start_slurmdbd()
        self._start_controller()
        for name in self.names:
            self.start_node(name)
        until(self.all_idle, f"idle nodes (see {self.at.root}/log)", within_s=90, every_s=0.1)

    def _start_controller(self) -> None:
        """Always without its saved state, as after `slurmctld -c`."""
        argv = ["slurmctld", "-D", "-c", "-f", str(self.at.conf)]
        self._ledger.start("slurmctld", argv, self.env)

    def lose_state(self) -> None:
        """slurmctld is started anew and remembers no drain and no job."""
        self._ledger.stop("slurmctld", wait_s=20)
        self._start_controller()
        until(self.all_idle, f"idle nodes (see {self.at.root}/log)", within_s=90, every_s=0.1)

    def _write_files(self) -> None:
        options, etc = self.options, self.at.etc
        self.at.conf.write_text(files.slurm_conf(self._bedding, self.at))
        (etc / "gres.conf").write_text(files.gres_conf(self._bedding, self.at))
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
        dbd = etc / "slurmdbd.conf"
        dbd.write_text(files.slurmdbd_conf(self._bedding, self.at))
        dbd.chmod(0o600)  # slurmdbd refuses a readable one: it holds the password
        for kind in ("prolog", "epilog", "healthcheck"):
            script = self.at.root / "hooks" / kind
            script.write_text(files.hook(kind, getattr(options, kind), self.at))
            script.chmod(0o755)
        for index in range(options.gpus):
            _make_gpu(self.at.root / "dev" / f"nvidia{index}", index)

    def _start_munge(self) -> None:
        place, munge_socket = self.at.root / "munge", self.at.munge_socket
        key = place / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        argv = [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={munge_socket}",
            f"--pid-file={place}/pid",
            f"--log-file={self.at.root}/log/munged.log",
            f"--seed-file={place}/seed",
            "--num-threads=2",
        ]
        self._ledger.start("munged", argv, self.env)
        until(lambda: self._quiet("munge", "-S", str(munge_socket), "-n"), "munged", within_s=20)

    def _start_slurmdbd(self) -> None:
        self._ledger.start("slurmdbd", ["slurmdbd", "-D"], self.env)
        port = self._bedding.ports.dbd
        until(lambda: _listens(port), f"slurmdbd (see {self.at.root}/log)", within_s=60)
        self.run("sacctmgr", "-i", "add", "cluster", self.options.cluster)

    def _quiet(self, *argv: str) -> bool:
        done = subprocess.run(argv, env=self.env, capture_output=True, check=False)
        return done.returncode == 0

    def down(self) -> None:
        """Stop everything this bed started. Safe to repeat."""
        names = list(self._ledger.read())
        for name in (n for n in names if n.startswith("slurmd.")):
            self._ledger.stop(name, sign=signal.SIGKILL)
        for pid in holders(self.at.root, "slurmstepd"):
            for member in family(pid):
                kill(member, signal.SIGKILL)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._ledger.stop(name, wait_s=20)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def _make_gpu(path: Path, index: int) -> None:
    """A character device with NVIDIA's major number; an ordinary user links a terminal instead."""
    if os.geteuid() == 0:
        os.mknod(path, 0o20666, os.makedev(195, index))
    else:
        path.symlink_to(f"/dev/tty{index + 1}")
