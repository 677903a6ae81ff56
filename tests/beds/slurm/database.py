"""The bed's MariaDB. Making an empty database takes seconds, so it is made once and copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.beds.packages import BedError, search_path
from tests.beds.processes import Ledger, until
from tests.beds.slurm.files import DB_PASSWORD
from tests.beds.slurm.options import Bedding, Layout

_GRANTS = f"""
create database if not exists slurm_acct_db;
create user if not exists slurm@'127.0.0.1' identified by '{DB_PASSWORD}';
grant all on slurm_acct_db.* to slurm@'127.0.0.1';
"""


def start(ledger: Ledger, bedding: Bedding, at: Layout, env: dict[str, str]) -> None:
    """Start mariadbd on a copy of the template and let slurmdbd in."""
    data = at.root / "mysql" / "data"
    _copy(_template(bedding.user, env), data)
    ledger.start(
        "mariadbd",
        [
            "mariadbd",
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={at.mysql_socket}",
            f"--port={bedding.ports.mysql}",
            "--bind-address=127.0.0.1",
            f"--pid-file={at.root}/mysql/pid",
            f"--user={bedding.user}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=2",
            "--max-allowed-packet=64M",
            "--performance-schema=OFF",
            "--skip-log-bin",
        ],
        env,
    )
    until(lambda: _ask("select 1", at, env), f"mariadbd (see {at.root}/log)", within_s=60)
    if not _ask(_GRANTS, at, env):
        raise BedError(f"mariadbd refused to create slurmdbd's account; see {at.root}/log")


def _ask(sql: str, at: Layout, env: dict[str, str]) -> bool:
    argv = ["mariadb", "--no-defaults", f"--socket={at.mysql_socket}", "-uroot", "-e", sql]
    return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


def _template(user: str, env: dict[str, str]) -> Path:
    """An empty database, made once per user and kept in the cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "komainu" / "beds"
    cache.mkdir(parents=True, exist_ok=True)
    template = cache / f"mariadb-{user}"
    if template.exists():
        return template
    fresh = Path(tempfile.mkdtemp(prefix="mariadb-", dir=cache))
    argv = [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={fresh}",
        f"--user={user}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    ]
    made = subprocess.run(argv, env=env | {"PATH": search_path()}, capture_output=True, check=False)
    if made.returncode:
        raise BedError(f"mariadb-install-db failed: {made.stderr.decode(errors='replace')[-500:]}")
    try:
        fresh.rename(template)
    except OSError:  # another bed was faster: use its template
        shutil.rmtree(fresh)
    return template
