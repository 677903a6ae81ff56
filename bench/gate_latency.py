"""What the gate adds to a job's start: the real prolog, from its start to its exit code.

Each figure is the time from posix_spawn to the end of wait, so that starting the shell is in it: what slurmd
pays. All contenders take turns within one round, so that a noisy machine is noisy for all; `ratio_to_sh_p50`
and `ratio_to_sh_p99` compare with `sh -c :` of the same rounds and are what to judge by on such a machine.

    p50_ms, p99_ms                       verdict OK, the job's record written
    {fault,unknown,skipped,stale,...}_   the other verdict states, as the policy `open` answers them
    epilog_                              the record that wakes the agent
    peers: sh (`sh -c :`), true (/bin/true), nhc (twelve cheap checks in NHC's manner, our re-creation:
    bench/peers/nhc_cheap.sh)
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import Options, Report, machine, missing, options, show
from komainu.core.gate import write_verdict
from komainu.core.node import NodePolicy, NodeVerdict, Phase
from komainu.core.verdict import Verdict

HOME = Path(__file__).resolve().parent.parent
PROLOG = HOME / "deploy" / "slurm" / "prolog"
EPILOG = HOME / "deploy" / "slurm" / "epilog"
NHC = HOME / "bench" / "peers" / "nhc_cheap.sh"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
GOAL_P99_MS = 3.0
GOAL_RATIO = 3.0


@dataclass(frozen=True)
class Contender:
    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    code: int = 0
    """Its exit code; any other means that something else was measured."""
    every: int = 1
    """Takes part in each n-th round."""


def uptime_s() -> int:
    return int(Path("/proc/uptime").read_text(encoding="ascii").split(".")[0])


@contextmanager
def node() -> Iterator[Path]:
    """A node's directories, on a tmpfs where there is one, as in production."""
    tmpfs = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=tmpfs if os.access(tmpfs, os.W_OK) else None) as made:
        yield Path(made)


def prolog_in(state: str, root: Path, text: str | None, code: int) -> Contender:
    """The prolog on a node of its own whose verdict file holds `text`."""
    run_dir = root / state / "run"
    (run_dir / "gate").mkdir(parents=True)
    (root / state / "state").mkdir()
    for place in (run_dir, root / state / "state") if text is not None else ():
        (place / "verdict").write_text(text or "", encoding="ascii")
    conf = root / state / "gate.conf"
    conf.write_text(f"run_dir={run_dir}\nstate_dir={root / state / 'state'}\n", encoding="ascii")
    return Contender(state, (str(PROLOG),), job_environment(conf), code)


def job_environment(conf: Path) -> dict[str, str]:
    return {
        "KOMAINU_GATE_CONF": str(conf),
        "SLURMD_NODENAME": "gpu-017",
        "SLURM_JOB_ID": "1234567",
        "SLURM_JOB_UID": "20017",
        "SLURM_JOB_USER": "alice",
        "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7",
    }


def contenders(root: Path) -> list[Contender]:
    now = uptime_s()

    def text(verdict: Verdict, phase: Phase = Phase.SETTLED, ttl_s: int = 86400) -> str:
        judged = NodeVerdict(verdict=verdict, phase=phase, message="GPU-XID-79 on GPU 3")
        stamp = now if ttl_s else max(now - 30, 0)
        return write_verdict(judged, NodePolicy(ttl_s=ttl_s or 1), BOOT_ID, stamp)

    states = [
        prolog_in("ok", root, text(Verdict.OK), 0),
        prolog_in("fault", root, text(Verdict.FAULT), 1),
        prolog_in("unknown", root, text(Verdict.UNKNOWN), 0),
        prolog_in("skipped", root, text(Verdict.SKIPPED), 0),
        prolog_in("stale", root, text(Verdict.OK, ttl_s=0), 0),
        prolog_in("missing", root, None, 0),
        prolog_in("checking", root, text(Verdict.OK, Phase.CHECKING), 0),
    ]
    path = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    return [
        *states,
        Contender("epilog", (str(EPILOG),), states[0].env),
        Contender("sh", ("/bin/sh", "-c", ":"), {}),
        Contender("true", ("/bin/true",), {}),
        Contender("nhc", ("/bin/bash", str(NHC)), path, every=5),
    ]


def one(contender: Contender, quiet: list[tuple[int, int, str, int, int]]) -> float:
    """One run in milliseconds."""
    began = time.perf_counter_ns()
    pid = os.posix_spawn(contender.command[0], contender.command, contender.env, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter_ns() - began) / 1e6
    code = os.waitstatus_to_exitcode(status)
    if code != contender.code:
        raise SystemExit(
            f"{contender.name} exited {code}, expected {contender.code}: nothing was measured"
        )
    return took


def measure(runs: int, chosen: list[Contender]) -> dict[str, list[float]]:
    """All contenders in turns; the order shifts by one each round."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
    times: dict[str, list[float]] = {contender.name: [] for contender in chosen}
    for number in range(-5, runs):  # a few rounds to warm up
        for place in range(len(chosen)):
            contender = chosen[(number + place) % len(chosen)]
            if number % contender.every == 0:
                took = one(contender, quiet)
                if number >= 0:
                    times[contender.name].append(took)
    return times


def percentile(times: list[float], share: float) -> float:
    return statistics.quantiles(times, n=1000, method="inclusive")[round(share * 1000) - 1]


def p50(times: list[float]) -> float:
    return statistics.median(times)


def p99(times: list[float]) -> float:
    return percentile(times, 0.99)


def report(times: dict[str, list[float]], runs: int) -> Report:
    figures: dict[str, float] = {}

    def add(into: dict[str, float], name: str, prefix: str) -> None:
        shares: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
            ("p50", p50),
            ("p99", p99),
        )
        for word, of in shares:
            into[f"{prefix}{word}_ms"] = round(of(times[name]), 3)

    add(figures, "ok", "")
    figures["ratio_to_sh_p50"] = round(p50(times["ok"]) / p50(times["sh"]), 3)
    figures["ratio_to_sh_p99"] = round(p99(times["ok"]) / p99(times["sh"]), 3)
    for state in ("fault", "unknown", "skipped", "stale", "missing", "checking", "epilog"):
        add(figures, state, f"{state}_")
    peers: dict[str, dict[str, float]] = {}
    for peer in ("sh", "true", "nhc"):
        peers[peer] = {}
        add(peers[peer], peer, "")
        for word, of in (("p50", p50), ("p99", p99)):
            peers[peer][f"komainu_is_{word}_times"] = round(of(times["ok"]) / of(times[peer]), 3)
    shell = os.path.realpath("/bin/sh")
    reached = figures["p99_ms"] <= GOAL_P99_MS and figures["ratio_to_sh_p99"] <= GOAL_RATIO
    goal = f"goal p99 <= {GOAL_P99_MS} ms on a quiet machine and <= {GOAL_RATIO} x sh -c :"
    return Report(
        figures,
        n=runs,
        peers=peers,
        bed=f"/bin/sh is {shell}; {machine()}; load {os.getloadavg()[0]:.1f}",
        notes=(
            f"{goal}: {'reached' if reached else 'not reached here'}",
            f"nhc: {len(times['nhc'])} runs of our re-creation, a lower bound of the real thing",
        ),
    )


def main() -> None:
    chosen: Options = options(__doc__)
    for needed in (Path("/bin/sh"), Path("/bin/bash"), Path("/bin/true"), PROLOG, EPILOG, NHC):
        if not needed.exists():
            missing(str(needed), do="It is part of the repository or of any Linux system.")
    runs = 300 if chosen.quick else 1000
    with node() as root:
        times = measure(runs, contenders(root))
    show(report(times, runs), chosen)


if __name__ == "__main__":
    main()
