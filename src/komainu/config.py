"""The one TOML file, typed: komainu.toml.

Every key has a type, a default and one sentence; unknown keys stop the start. Secrets are never in
it, only paths of files that hold them. docs/reference/configuration.md is generated from here.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from komainu.core.errors import ConfigError
from komainu.core.names import cluster_name
from komainu.core.policy import Policy, PositiveInt

DEFAULT_PATH = Path("/etc/komainu/komainu.toml")


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The process on every node."""

    cluster: str = "cluster"
    """The cluster this node belongs to."""
    node: str = ""
    """This node's name as the scheduler spells it; empty: the host's short name."""
    server: str = "http://127.0.0.1:8470"
    """Base address of the server; empty: no server, the node decides alone."""
    state_dir: Path = Path("/var/lib/komainu")
    """Survives a reboot: spool, cursor, orders, last verdict."""
    run_dir: Path = Path("/run/komainu")
    """A tmpfs: the verdict renewed every second, and the gate's records."""
    token_file: Path = Path("/var/lib/komainu/node.token")
    """This node's token, written by enrolment, mode 0600."""
    join_token_file: Path = Path("/etc/komainu/join.token")
    """One-time token for enrolment; may be removed afterwards."""
    ca_file: str = ""
    """PEM file of the authority that signed the server's certificate; empty: the system's."""
    kernel_log: str = "/dev/kmsg"
    """`/dev/kmsg`, or `file:PATH` for a replayed log in the same record format (tests, lab)."""
    heartbeat_s: PositiveInt = 10
    """Longest time without a batch; findings are sent at once."""
    spool_max_mb: PositiveInt = 64
    """Bound of the spool; beyond it debug data is dropped first, and counted."""
    gpus_expected: Annotated[int, msgspec.Meta(ge=0)] = 0
    """GPUs this node must have; fewer ever seen is `GPU-MISSING`. 0: only those seen before count."""
    checks_off: tuple[str, ...] = ()
    """Node checks not made (`gpus`, `clock`); such a node is SKIPPED at best, never OK."""
    rack: str = ""
    """Rack of this node, until inventory has a better source."""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command line."""

    server: str = "http://127.0.0.1:8470"
    """Base address of the server."""
    token_file: Path = Path("~/.config/komainu/token")
    """A person's API token (`komainu server token`)."""
    cluster: str = ""
    """Cluster meant when a node is named without one; empty: the only one there is."""
    ca_file: str = ""
    """PEM file of the authority that signed the server's certificate; empty: the system's."""


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster the server watches."""

    name: str
    """Its name; qualifies every node."""
    scheduler: Literal["slurm", "none"] = "slurm"
    """`none`: watch and tell, without acting."""
    slurm_conf: str = ""
    """SLURM_CONF for scontrol and squeue; empty: the system's."""
    slurm_bin: str = ""
    """Directory of scontrol and squeue; empty: the PATH."""
    scheduler_poll_s: PositiveInt = 5
    """How often the scheduler's whole view is read; findings do not wait for it."""
    scheduler_timeout_s: PositiveInt = 10
    """Deadline of one scheduler call."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The process in the centre."""

    listen: str = "127.0.0.1:8470"
    """Address and port of API and console."""
    database: str = "sqlite:////var/lib/komainu-server/komainu.db"
    """SQLAlchemy address: sqlite:///… or postgresql+psycopg://…; the password comes from PGPASSFILE."""
    tls_cert: str = ""
    """PEM certificate; with `tls_key` the server speaks HTTPS only."""
    tls_key: str = ""
    """PEM key, mode 0600, owned by the user the server runs as."""
    session_hours: PositiveInt = 12
    """How long a login lasts."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of komainu.toml."""

    agent: AgentConfig = AgentConfig()
    client: ClientConfig = ClientConfig()
    server: ServerConfig = ServerConfig()
    clusters: tuple[ClusterConfig, ...] = ()
    policy: Policy = Policy()


def load(path: Path | None = None) -> Config:
    """Read komainu.toml: `path`, else $KOMAINU_CONFIG, else /etc/komainu/komainu.toml, else defaults.

    Raises ConfigError naming the file and the key.
    """
    named = path or (Path(found) if (found := os.environ.get("KOMAINU_CONFIG")) else None)
    chosen = named or DEFAULT_PATH
    try:
        text = chosen.read_text("utf-8")
    except FileNotFoundError:
        if named is None:
            return Config()
        raise ConfigError(
            f"configuration {chosen} does not exist. Name another with --config."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {chosen} cannot be read: {error}") from error
    return parse(text, str(chosen))


def parse(text: str, where: str) -> Config:
    """Check the text of a komainu.toml; `where` names it in errors."""
    try:
        config = msgspec.convert(tomllib.loads(text), Config, dec_hook=_path)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: {error}. See docs/reference/configuration.md.") from error
    names = [cluster_name(cluster.name) for cluster in config.clusters]
    if len(set(names)) != len(names):
        raise ConfigError(f"{where}: a cluster name occurs twice in [[clusters]]: {names}")
    return config


def _path(wanted: type, value: object) -> object:
    """A path is text in TOML, and msgspec reads none by itself."""
    if wanted is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"found {value!r}, expected {wanted.__name__}")
