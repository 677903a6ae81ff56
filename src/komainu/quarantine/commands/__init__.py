"""Questions and requests about nodes: why, nodes, findings, decisions, hold, release.

Each asks the server once and prints what it said: text for people (text.py), or with --json the
view itself. Exit codes: 0 fine, 1 findings, 2 could not tell (asking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from komainu.core.names import cluster_name
from komainu.core.views import (
    Answer,
    Ask,
    DecisionPage,
    DecisionView,
    FindingPage,
    FindingView,
    Standing,
)
from komainu.quarantine.commands import text
from komainu.quarantine.commands.asking import (
    answer_code,
    findings_code,
    node_code,
    nodes_code,
    runbook_of,
    server_of,
    which,
)

PAGE = 200
_F = TypeVar("_F", bound=Callable[..., Any])

_json = click.option("--json", "as_json", is_flag=True, help="The server's view, as JSON.")
_cluster = click.option("--cluster", help="Only this cluster.")
_limit = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=PAGE,
    show_default=True,
    help="At most so many, newest first; that there are more is said.",
)


def _requests(command: _F) -> _F:
    """The options of a person's request."""
    options = (
        click.argument("node"),
        click.option("--because", required=True, help="Why, in a few words; it is recorded."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        _json,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("why")
@click.argument("node")
@_json
@click.pass_context
def why(ctx: click.Context, *, node: str, as_json: bool) -> None:
    """Why NODE stands as it does: verdict, evidence, decisions, scheduler, what to do next.

    NODE is a node's name, or CLUSTER/NODE. Exit: 0 healthy, 1 findings, 2 unseen or unknown.
    """
    server = server_of(ctx)
    view = server.node(which(server, node))
    _say(view, lambda: text.why(view, datetime.now(UTC), runbook_of(ctx)), as_json=as_json)
    ctx.exit(node_code(view.row.standing))


@click.command("hold")
@_requests
@click.option("--force", is_flag=True, help="Beyond the guard's room: admins only, recorded.")
@click.pass_context
def hold(
    ctx: click.Context,
    *,
    node: str,
    because: str,
    dry_run: bool,
    as_json: bool,
    force: bool,
) -> None:
    """Keep the next job off NODE until it is released. Running jobs finish."""
    server = server_of(ctx)
    ask = Ask(reason=because, dry_run=dry_run, force=force)
    _answered(ctx, server.hold(which(server, node), ask), as_json=as_json)


@click.command("release")
@_requests
@click.pass_context
def release(
    ctx: click.Context,
    *,
    node: str,
    because: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give NODE back to service, and close its open findings. A drain that is not ours stays."""
    server = server_of(ctx)
    ask = Ask(reason=because, dry_run=dry_run)
    _answered(ctx, server.release(which(server, node), ask), as_json=as_json)


@click.command("nodes")
@_cluster
@click.option(
    "--standing",
    "standings",
    multiple=True,
    type=click.Choice([standing.value for standing in Standing]),
    help="Only nodes that stand so; may be given several times.",
)
@_json
@click.pass_context
def nodes(
    ctx: click.Context, *, cluster: str | None, standings: Sequence[str], as_json: bool
) -> None:
    """The nodes and how they stand, and how many more the guard lets go.

    Exit: 1 if one is not healthy, 2 if one cannot be seen (all nodes asked for, whatever --standing).
    """
    named = None if cluster is None else cluster_name(cluster)
    server = server_of(ctx)
    rows = server.nodes(named)
    code = nodes_code(rows)
    chosen = [row for row in rows if not standings or row.standing.value in standings]
    chosen.sort(key=lambda row: (row.cluster, row.node))

    def lines() -> list[str]:
        views = [one for one in server.clusters() if named in {None, one.cluster}]
        return text.nodes(chosen) + text.guards(views)

    _say(chosen, lines, as_json=as_json)
    ctx.exit(code)


@click.command("findings")
@_cluster
@click.option("--node", help="Only this node: NODE or CLUSTER/NODE.")
@click.option("--code", help="Only this code, such as GPU-XID-79.")
@click.option("--all", "closed_too", is_flag=True, help="Closed ones too.")
@_limit
@_json
@click.pass_context
def findings(
    ctx: click.Context,
    *,
    cluster: str | None,
    node: str | None,
    code: str | None,
    closed_too: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Open findings, newest first. Exit: 1 if there are any."""
    server = server_of(ctx)
    cluster, node = _meant(ctx, cluster, node)
    seen: list[FindingView] = []
    page = FindingPage(findings=[], total=0, more=True)
    while page.more and len(seen) < limit:
        page = server.findings(
            cluster=cluster,
            node=node,
            code=code,
            open_only=not closed_too,
            before=page.before,
            limit=min(PAGE, limit - len(seen)),
        )
        seen += page.findings
        if page.before is None:
            break
    whole = msgspec.structs.replace(page, findings=seen)
    more = [f"{len(seen)} of {page.total} shown; --limit shows more"] if page.more else []
    none = ["no findings" if closed_too else "no open findings"]
    _say(whole, lambda: (text.findings(seen) if seen else none) + more, as_json=as_json)
    ctx.exit(findings_code(seen))


@click.command("decisions")
@_cluster
@click.option("--node", help="Only this node: NODE or CLUSTER/NODE.")
@_limit
@_json
@click.pass_context
def decisions(
    ctx: click.Context,
    *,
    cluster: str | None,
    node: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """What was decided, by whom, and what came of it; newest first."""
    server = server_of(ctx)
    cluster, node = _meant(ctx, cluster, node)
    seen: list[DecisionView] = []
    page = DecisionPage(decisions=[], more=True)
    while page.more and len(seen) < limit:
        page = server.decisions(
            cluster=cluster, node=node, before=page.before, limit=min(PAGE, limit - len(seen))
        )
        seen += page.decisions
        if page.before is None:
            break
    whole = msgspec.structs.replace(page, decisions=seen)
    more = [f"{len(seen)} shown, there are older ones; --limit shows more"] if page.more else []
    _say(
        whole, lambda: (text.decisions(seen) if seen else ["no decisions"]) + more, as_json=as_json
    )


def _meant(
    ctx: click.Context, cluster: str | None, node: str | None
) -> tuple[str | None, str | None]:
    """The filters, checked: `--node c/n` names its cluster, and two different ones contradict."""
    named = None if cluster is None else cluster_name(cluster)
    if node is None:
        return named, None
    if named is not None and "/" not in node:
        node = f"{named}/{node}"
    key = which(server_of(ctx), node)
    if named is not None and key.cluster != named:
        raise click.UsageError(f"--node {node} is not in --cluster {named}")
    return key.cluster, key.node


def _answered(ctx: click.Context, said: Answer, *, as_json: bool) -> None:
    _say(said, lambda: text.answer(said), as_json=as_json)
    ctx.exit(answer_code(said))


def _say(view: object, lines: Callable[[], Sequence[str]], *, as_json: bool) -> None:
    click.echo(msgspec.json.encode(view).decode() if as_json else "\n".join(lines()))


COMMANDS: tuple[click.Command, ...] = (why, hold, release, nodes, findings, decisions)
