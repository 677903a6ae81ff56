"""The command line: gathers what the rooms offer, and says errors plainly.

Nothing of a room is imported before its command is asked for, so that `komainu explain`, which a
technician runs in a pipe at night, starts at once. Exit codes: 0 fine, 1 findings, 2 could not tell.
"""

from __future__ import annotations

import errno
import importlib
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from komainu import __version__
from komainu.core.errors import KomainuError

if TYPE_CHECKING:
    from komainu.config import Config

COMMANDS: dict[str, str] = {
    "agent": "komainu.agent.commands",
    "catalogue": "komainu.health.commands",
    "check": "komainu.agent.commands",
    "decisions": "komainu.quarantine.commands",
    "demo": "komainu.demo",
    "explain": "komainu.health.commands",
    "findings": "komainu.quarantine.commands",
    "hold": "komainu.quarantine.commands",
    "nodes": "komainu.quarantine.commands",
    "release": "komainu.quarantine.commands",
    "server": "komainu.server.commands",
    "why": "komainu.quarantine.commands",
}
"""Command → the module whose COMMANDS holds it. A test holds this against the modules themselves."""


SERVER_PART = frozenset({"starlette", "uvicorn", "httpx2", "sqlalchemy", "alembic", "jinja2"})
"""Packages that a node does without: the `server` extra of pyproject.toml. A test holds them equal."""


class Shared(dict[str, Any]):
    """What commands share, made when first asked for: `config`, `api`, which returns the client, and
    `runbook_of`, which finds a finding code's page.

    Lazy, because a command that needs no configuration must not fail on one it cannot read.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, key: str) -> Any:
        if key == "config":
            from komainu.config import load

            self[key] = load(self._path)
        elif key == "api":
            self[key] = self._api
        elif key == "runbook_of":
            from komainu.health.runbooks import runbook_of

            self[key] = runbook_of
        else:
            raise KeyError(key)
        return self[key]

    def _api(self) -> Any:
        from komainu.clients.api import Api

        config: Config = self["config"]
        return Api(config.client)


class Plain(click.ClickException):
    """One of Komainu's own errors: its message is written for a person, so it is all that is shown."""

    exit_code = 2


class ReaderGone(Exception):
    """Nobody reads what is written. click would make exit code 1 of it, which here means findings."""


class Rooms(click.Group):
    """The group of all commands; each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click asks so)
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click asks so)
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        room = importlib.import_module(COMMANDS[cmd_name])
        offered: tuple[click.Command, ...] = room.COMMANDS
        return next(command for command in offered if command.name == cmd_name)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:  # by --help
            raise ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except KomainuError as error:
            raise Plain(str(error)) from error
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in SERVER_PART:
                raise
            raise Plain(_without_server_part(ctx.invoked_subcommand or "", package)) from error


def _without_server_part(command: str, package: str) -> str:
    wheel = f"komainu-{__version__}-py3-none-any.whl[server]"
    return (
        f"komainu {command} needs {package}, which is not installed here: this is what a node gets. "
        f"Add the server's part: {sys.executable} -m pip install '{wheel}' (docs/start/install.md)."
    )


@click.group(cls=Rooms, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="komainu")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="komainu.toml to use; else $KOMAINU_CONFIG, else /etc/komainu/komainu.toml.",
)
@click.pass_context
def komainu(ctx: click.Context, config: Path | None) -> None:
    """No job starts on a node known to be bad, and every failed job has its evidence.

    Exit codes: 0 fine, 1 findings, 2 could not tell.
    """
    ctx.obj = Shared(config)


def main() -> None:
    """Entry point of `komainu`: whatever becomes of its output, one line and an exit code that means it."""
    if sys.stdout is None:  # closed by the caller, who wants the exit code alone
        _sink()
    code = 0
    try:
        code = _run()
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        if not _nobody_reads():
            raise  # some other pipe or connection
        _sink()  # the reader has seen enough (`| head`): no fault of the command
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _sink()
        click.echo(f"Error: cannot write: {error.strerror}. Is standard output full?", err=True)
        code = Plain.exit_code
    sys.exit(code)


def _run() -> int:
    """Run the command that the arguments name. Returns its exit code."""
    try:
        answer = komainu.main(prog_name="komainu", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("Aborted.", err=True)
        return Plain.exit_code
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0
    return answer if isinstance(answer, int) else 0


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to standard output fails with, once it is open, other than that nobody reads it."""


def _nobody_reads() -> bool:
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _sink() -> None:
    """Let standard output go nowhere: Python would complain of it once more while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (until the process ends)
