"""A node's directories, and the real gate scripts run on them under each shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from komainu.core.gate import GateRecord, read_record

DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
OTHER_BOOT = "00000000-1111-2222-3333-444444444444"
MESSAGE = "GPU-XID-79 GPU 3 has fallen off the bus"

SHELLS = {
    name: [found, *options]
    for name, (program, *options) in {
        "dash": ["dash"],
        "bash": ["bash", "--posix"],
        "busybox": ["busybox", "sh"],
        "dash-eu": ["dash", "-eu"],
        "bash-eu": ["bash", "--posix", "-eu"],
    }.items()
    if (found := shutil.which(program))
}
"""By absolute path, since tests take PATH away. dash and bash are what Slurm's systems have as sh."""

TTL_S = 3600
"""Long, so that a line made when tests are collected is still fresh when they run."""


def uptime() -> int:
    return int(Path("/proc/uptime").read_text().split(".")[0])


def verdict_line(
    verdict: str = "OK",
    phase: str = "settled",
    *,
    boot: str = BOOT,
    age: int = 0,
    ttl: int | str = TTL_S,
    stale: str = "open",
    checking: str = "open",
    wait_s: int | str = 0,
    message: str = MESSAGE,
) -> str:
    stamp = max(uptime() - age, 0)
    head = f"komainu1 {verdict} {phase} {boot} {stamp} {ttl} {stale} {checking} {wait_s}"
    return f"{head} {message}\n"


def stale_line(verdict: str = "OK") -> str:
    """Not renewed for longer than it lives; short enough for a machine that has just booted."""
    return verdict_line(verdict, age=20, ttl=1)


def replace(path: Path, text: str | bytes) -> None:
    """As the agent does: a new file renamed over the old one."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(text.encode("latin-1") if isinstance(text, str) else text)
    new.replace(path)


@dataclass(frozen=True)
class Answer:
    code: int
    said: str
    took_s: float


@dataclass
class Bed:
    root: Path
    shell: list[str]
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.run_dir / "gate").mkdir(parents=True, mode=0o700)
        self.state_dir.mkdir()
        self.settings = {"run_dir": str(self.run_dir), "state_dir": str(self.state_dir)}

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def verdict(self) -> Path:
        return self.run_dir / "verdict"

    @property
    def remembered(self) -> Path:
        return self.state_dir / "verdict"

    @property
    def records_path(self) -> Path:
        return self.run_dir / "gate" / "records"

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        conf = self.root / "gate.conf"
        text = "".join(f"{key}={value}\n" for key, value in self.settings.items())
        if not conf.exists() or conf.read_text() != text:
            replace(conf, text)
        return {
            "KOMAINU_GATE_CONF": str(conf),
            "SLURMD_NODENAME": "gpu-017",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_USER": "alice",
            "SLURM_JOB_UID": "1001",
            "SLURM_JOB_GPUS": "0,1",
            **(more or {}),
        }

    def run(
        self,
        script: str | Path = "prolog",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Answer:
        began = time.monotonic()
        done = subprocess.run(
            [*self.shell, str(DEPLOY / script)],
            env=self.environment(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=40,
            check=False,
        )
        said = (done.stdout + done.stderr).decode("latin-1")
        return Answer(done.returncode, said, time.monotonic() - began)

    def records(self) -> list[GateRecord]:
        if not self.records_path.exists():
            return []
        return [read_record(line) for line in self.records_path.read_text().splitlines()]

    def answer(self) -> tuple[int, str]:
        """Exit code and the recorded why of one prolog."""
        code = self.run().code
        return code, self.records()[-1].why.value


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def closed_descriptors(*which: int) -> None:
    for number in which:
        os.close(number)
