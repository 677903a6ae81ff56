"""A whole Komainu on a real Slurm bed: one server, one agent per node, the real prolog and epilog.

Each node has its own kernel log (a file in /dev/kmsg's record format), state and run directory and
gate.conf, since all of them share one host. Server and agents are processes as in production, so
that they can be killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.beds.packages import BedError
from tests.beds.processes import Ledger, Started, free_ports, until
from tests.beds.slurm import BedOptions, SlurmBed

from komainu.clients.api import Api
from komainu.clients.slurm import Slurm
from komainu.config import ClientConfig
from komainu.core.errors import InputError, KomainuError
from komainu.core.gate import VerdictFile, read_verdict
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.verdict import Verdict
from komainu.server import secrets
from komainu.store import open_store

GATE = Path(__file__).parents[2] / "deploy" / "slurm"
XID_79 = (
    "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


def with_gate(nodes: int, *, accounting: bool = True) -> BedOptions:
    """A bed whose nodes have the real gate."""
    return BedOptions(
        nodes=nodes,
        accounting=accounting,
        prolog=str(GATE / "prolog"),
        epilog=str(GATE / "epilog"),
    )


class KernelLogFile:
    """A node's kernel log, written to as the kernel would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seq = 0
        path.touch()

    def write(self, text: str, *, prio: int = 3) -> int:
        """One record, by default of the kernel's own (facility 0, level err); gives its number."""
        micros = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        with self.path.open("ab") as log:
            log.write(f"{prio},{self._seq},{micros},-;{text}\n".encode())
        self._seq += 1
        return self._seq - 1


class Site:
    """One Komainu, all of it."""

    def __init__(self, bed: SlurmBed, policy: str, poll_s: int) -> None:
        self.bed = bed
        self.cluster = ClusterName(bed.options.cluster)
        self.names = tuple(NodeName(name) for name in bed.names)
        self.root = bed.at.root / "komainu"
        (self.root / "log").mkdir(parents=True)
        self._ledger = Ledger(self.root)
        self._port = free_ports(1)[0]
        self.logs = {name: KernelLogFile(self.home(name) / "kmsg") for name in self.names}
        self._write_config(policy, poll_s)
        self.api = Api(ClientConfig(server=self._url, token_file=self._make_accounts()))
        self.scheduler = Slurm(self.cluster, slurm_conf=str(bed.at.conf))

    def home(self, node: NodeName) -> Path:
        return self.bed.at.node(node)

    def key(self, node: NodeName) -> NodeKey:
        return NodeKey(self.cluster, node)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def config(self) -> Path:
        return self.root / "komainu.toml"

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def _write_config(self, policy: str, poll_s: int) -> None:
        self.config.write_text(
            f"""\
[server]
listen = "127.0.0.1:{self._port}"
database = "sqlite:///{self.root}/komainu.db"
[client]
server = "{self._url}"
token_file = "{self.root}/person.token"
[[clusters]]
name = "{self.cluster}"
slurm_conf = "{self.bed.at.conf}"
scheduler_poll_s = {poll_s}
{policy}
"""
        )
        for name in self.names:
            home = self.home(name)
            (home / "gate.conf").write_text(f"run_dir={home}/run\nstate_dir={home}/state\n")
            (home / "agent.toml").write_text(
                f"""\
[agent]
cluster = "{self.cluster}"
node = "{name}"
server = "{self._url}"
state_dir = "{home}/state"
run_dir = "{home}/run"
token_file = "{home}/node.token"
join_token_file = "{self.root}/join.token"
kernel_log = "file:{home}/kmsg"
heartbeat_s = 2
"""
            )

    def _make_accounts(self) -> Path:
        """A person with an API token, and one join token for all nodes; gives the token's file."""
        now = datetime.now(UTC)
        person, join = secrets.new_token(), secrets.new_token()
        store = open_store(f"sqlite:///{self.root}/komainu.db")
        store.put_user("ann", "admin", secrets.password_hash(secrets.new_password()), now)
        store.put_api_token(secrets.token_hash(person), "ann", now)
        store.put_join_token(
            secrets.token_hash(join), self.cluster, len(self.names), now + timedelta(hours=1), now
        )
        store.close()
        for name, token in (("person.token", person), ("join.token", join)):
            path = self.root / name
            path.touch(mode=0o600)
            path.write_text(token)
        return self.root / "person.token"

    # ── processes ────────────────────────────────────────────────────────────────────────────────

    def start_server(self) -> None:
        self._ledger.start("server", [*self._komainu, "server"], self.bed.env)

    @property
    def _komainu(self) -> list[str]:
        return [sys.executable, "-m", "komainu", "--config", str(self.config)]

    def komainu(self, *arguments: str) -> tuple[int, str]:
        """Run a command as a person would: exit code and what it printed."""
        done = subprocess.run(
            [*self._komainu, *arguments],
            env=self.bed.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    def start_agent(self, node: NodeName) -> None:
        argv = [sys.executable, "-m", "komainu.agent", str(self.home(node) / "agent.toml")]
        self._ledger.start(f"agent.{node}", argv, self.bed.env)

    def kill(self, name: str) -> None:
        """SIGKILL `server` or `agent.NODE`."""
        self._ledger.stop(name, sign=signal.SIGKILL)

    def processes(self) -> dict[str, Started]:
        return self._ledger.read()

    def down(self) -> None:
        self.api.close()
        for name in self._ledger.read():
            self._ledger.stop(name, wait_s=8)

    # ── what can be seen ─────────────────────────────────────────────────────────────────────────

    def verdict(self, node: NodeName) -> VerdictFile | None:
        """The node's verdict as the gate would read it; None when there is none yet."""
        try:
            return read_verdict((self.home(node) / "run" / "verdict").read_text("ascii"))
        except (FileNotFoundError, InputError):
            return None

    def _all_well(self) -> bool:
        for name in self._ledger.read():
            if not self._ledger.running(name):
                raise BedError(f"{name} ended; see {self.root}/log/{name}.out")
        try:
            rows = [row for row in self.api.nodes(self.cluster) if row.seen is not None]
        except KomainuError:
            return False
        verdicts = [self.verdict(name) for name in self.names]
        return len(rows) == len(self.names) and all(
            one is not None and one.verdict is Verdict.OK for one in verdicts
        )

    def start(self) -> None:
        self.start_server()
        for name in self.names:
            self.start_agent(name)
        until(self._all_well, f"a well site (see {self.root}/log)", within_s=90, every_s=0.25)

    def submit(self, *arguments: str) -> str:
        """A batch job on whole nodes; gives its number."""
        said = self.bed.run("sbatch", "--parsable", "--gres=gpu:8", *arguments)
        return said.strip().partition(";")[0]


@contextmanager
def site_on(bed: SlurmBed, policy: str = "", *, poll_s: int = 1) -> Iterator[Site]:
    """A site for as long as the block lasts. `policy`: lines of TOML, `[policy]` first."""
    site = Site(bed, policy, poll_s)
    try:
        site.start()
        yield site
    finally:
        site.down()


def states(site: Site, jobs: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Job → (state, nodes, reason), as squeue says."""
    said = site.bed.run("squeue", "-h", "-a", "-t", "all", "-o", "%A|%T|%N|%r")
    rows = [line.split("|") for line in said.splitlines()]
    return {row[0]: (row[1], row[2], row[3]) for row in rows if row[0] in jobs}
