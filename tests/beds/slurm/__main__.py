"""`python -m tests.beds.slurm up|down|env|kill-node|start-node DIR …` for people."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click
from tests.beds.packages import BedError
from tests.beds.slurm.bed import SlurmBed
from tests.beds.slurm.options import BedOptions

_DIR = click.argument("root", metavar="DIR", type=click.Path(path_type=Path))
_NODE = click.argument("node")


@click.group()
def main() -> None:
    """A real Slurm cluster in one directory."""


@main.command()
@_DIR
@click.option("--nodes", default=8, show_default=True)
@click.option("--gpus", default=8, show_default=True, help="Fake GPUs per node.")
@click.option("--no-accounting", is_flag=True, help="Without MariaDB and slurmdbd.")
@click.option("--prolog", default="", help="Program run as prolog on every node.")
@click.option("--epilog", default="", help="Program run as epilog on every node.")
@click.option("--healthcheck", default="", help="HealthCheckProgram.")
@click.option("--nohold", is_flag=True, help="SchedulerParameters=nohold_on_prolog_fail.")
@click.option("--cred-expire", default=5, show_default=True, help="Seconds a requeued job waits.")
def up(  # noqa: PLR0917 - one argument per option
    root: Path,
    nodes: int,
    gpus: int,
    no_accounting: bool,
    prolog: str,
    epilog: str,
    healthcheck: str,
    nohold: bool,
    cred_expire: int,
) -> None:
    """Bring a bed up and print how to use it."""
    options = BedOptions(
        nodes=nodes,
        gpus=gpus,
        accounting=not no_accounting,
        prolog=prolog,
        epilog=epilog,
        healthcheck=healthcheck,
        nohold_on_prolog_fail=nohold,
        cred_expire_s=cred_expire,
    )
    began = time.monotonic()
    bed = SlurmBed.up(root, options)
    click.echo(f"{nodes} nodes idle after {time.monotonic() - began:.1f} s. To use it:")
    click.echo(f"  export SLURM_CONF={shlex.quote(str(bed.at.conf))}")


@main.command()
@_DIR
def down(root: Path) -> None:
    """Stop everything the bed started."""
    SlurmBed(root).down()


@main.command()
@_DIR
def env(root: Path) -> None:
    """Print the line that points Slurm's commands at the bed."""
    click.echo(f"export SLURM_CONF={shlex.quote(str(SlurmBed(root).at.conf))}")


@main.command("kill-node")
@_DIR
@_NODE
def kill_node(root: Path, node: str) -> None:
    """SIGKILL one node's slurmd."""
    SlurmBed(root).kill_node(node)


@main.command("start-node")
@_DIR
@_NODE
def start_node(root: Path, node: str) -> None:
    """Start one node's slurmd again."""
    SlurmBed(root).start_node(node)


if __name__ == "__main__":
    try:
        main()
    except BedError as error:
        raise SystemExit(f"bed: {error}") from error
