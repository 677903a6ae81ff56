"""`komainu server`: run the server, and keep its accounts and tokens.

The sub-commands speak to the database itself, on the server's machine, as the user that owns it: who
may read that file may do this, and no password travels.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from komainu.config import Config
    from komainu.store import SqlStore

ROLES = click.Choice(["viewer", "operator", "admin"])
PASSWORD_FILE = click.option(
    "--password-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File whose first line is the password.",
)
GENERATE = click.option("--generate", is_flag=True, help="Make a password and print it once.")


@click.group("server", invoke_without_command=True)
@click.pass_context
def server(ctx: click.Context) -> None:
    """Run the server; with a sub-command, keep its accounts and tokens."""
    if ctx.invoked_subcommand is None:
        from komainu.server.run import serve

        serve(ctx.obj["config"])


@server.command("init")
@click.option("--name", default="admin", show_default=True, help="Name of the first account.")
@PASSWORD_FILE
@GENERATE
@click.pass_context
def init(ctx: click.Context, name: str, password_file: Path | None, *, generate: bool) -> None:
    """Make the database and the first account, an admin. Does nothing where accounts exist."""
    store = _store(ctx)
    if store.users():
        names = ", ".join(person.name for person in store.users())
        click.echo(f"accounts exist already ({names}); nothing was changed")
        return
    _put(store, name, "admin", password_file, generate=generate)


@server.command("join-token")
@click.argument("cluster")
@click.option("--uses", default=1, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--hours", default=24, show_default=True, type=click.IntRange(1, 24 * 365))
@click.option("--node", help="Good for this node alone, also when it is enrolled already.")
@click.pass_context
def join_token(ctx: click.Context, cluster: str, uses: int, hours: int, node: str | None) -> None:
    """Print a token with which nodes of CLUSTER can enrol: one use a node.

    A node that is enrolled already (it was installed anew, say) needs one made for it: --node.
    """
    from komainu.core.errors import InputError
    from komainu.core.names import cluster_name, node_name
    from komainu.server import secrets

    name = cluster_name(cluster)
    config: Config = ctx.obj["config"]
    watched = [one.name for one in config.clusters]
    if name not in watched:
        raise InputError(
            f"cluster {name} is not among [[clusters]] of komainu.toml "
            f"({', '.join(watched) or 'none'}). Add it there first, or correct the name."
        )
    token, now = secrets.new_token(), _now()
    until = now + timedelta(hours=hours)
    alone = None if node is None else node_name(node)
    _store(ctx).put_join_token(secrets.token_hash(token), name, uses, until, now, alone)
    click.echo(token)
    whom = f"{uses} node(s) of {name}" if alone is None else f"{name}/{alone}"
    click.echo(f"good for {whom} until {until:%Y-%m-%d %H:%M} UTC", err=True)


@server.command("token")
@click.argument("name")
@click.option("--days", type=click.IntRange(1, 3650), help="Expires after so many days.")
@click.option("--revoke", is_flag=True, help="Withdraw all tokens of NAME instead.")
@click.pass_context
def token(ctx: click.Context, name: str, days: int | None, *, revoke: bool) -> None:
    """Print an API token for the account NAME (shown once; it has that account's role)."""
    from komainu.server import secrets

    store, now = _store(ctx), _now()
    if revoke:
        click.echo(f"{store.drop_api_tokens(name, now)} token(s) of {name} withdrawn")
        return
    made = secrets.new_token()
    until = None if days is None else now + timedelta(days=days)
    store.put_api_token(secrets.token_hash(made), name, now, until)
    click.echo(made)


@server.command("prune")
@click.option("--days", default=90, show_default=True, type=click.IntRange(1, 36500))
@click.pass_context
def prune(ctx: click.Context, days: int) -> None:
    """Forget observations and feed entries older than DAYS; findings and decisions stay."""
    gone = _store(ctx).prune(_now() - timedelta(days=days))
    click.echo(f"{gone} observation(s) forgotten")


@server.group("user")
def user() -> None:
    """Accounts."""


@user.command("add")
@click.argument("name")
@click.option("--role", type=ROLES, required=True)
@PASSWORD_FILE
@GENERATE
@click.pass_context
def user_add(
    ctx: click.Context, name: str, role: str, password_file: Path | None, *, generate: bool
) -> None:
    """Make the account NAME, or give it another role and password (its sessions end)."""
    _put(_store(ctx), name, role, password_file, generate=generate)


@user.command("remove")
@click.argument("name")
@click.pass_context
def user_remove(ctx: click.Context, name: str) -> None:
    """Remove the account NAME with its sessions and tokens; what it did stays in the record."""
    from komainu.core.errors import InputError

    if not _store(ctx).drop_user(name, _now()):
        raise InputError(f"there is no account {name!r}. `komainu server user list` names them.")
    click.echo(f"{name} removed")


@user.command("list")
@click.pass_context
def user_list(ctx: click.Context) -> None:
    """Names and roles."""
    for person in _store(ctx).users():
        click.echo(f"{person.name}\t{person.role}")


def _store(ctx: click.Context) -> SqlStore:
    from komainu.store import open_store

    config: Config = ctx.obj["config"]
    store = open_store(config.server.database)
    ctx.call_on_close(store.close)
    return store


def _put(
    store: SqlStore, name: str, role: str, password_file: Path | None, *, generate: bool
) -> None:
    from komainu.core.names import account_name
    from komainu.server import secrets

    account_name(name)
    password = _password(password_file, generate=generate)
    store.put_user(name, role, secrets.password_hash(secrets.checked_password(password)), _now())
    click.echo(f"account {name} ({role}) is ready")
    if generate:
        click.echo(f"password: {password}")


def _password(path: Path | None, *, generate: bool) -> str:
    from komainu.core.errors import InputError
    from komainu.server import secrets

    if generate:
        return secrets.new_password()
    if path is not None:
        return path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    if not sys.stdin.isatty():
        raise InputError("no password was given: use --password-file FILE, or --generate")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))


def _now() -> datetime:
    return datetime.now(UTC)


COMMANDS: tuple[click.Command, ...] = (server,)
