"""What the commands ask the server, which node is meant, and what the exit code says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import click

from komainu.core.decision import Result
from komainu.core.names import ClusterName, NodeKey, cluster_name, node_name
from komainu.core.views import (
    Answer,
    Ask,
    ClusterView,
    DecisionPage,
    FindingPage,
    FindingView,
    NodeRow,
    NodeView,
    Standing,
)

FINE, FINDINGS, COULD_NOT_TELL = 0, 1, 2


class Server(Protocol):
    """The API as these commands use it; clients/api.py is the real one."""

    def cluster(self) -> ClusterName: ...
    def clusters(self) -> list[ClusterView]: ...
    def nodes(self, cluster: str | None = None) -> list[NodeRow]: ...
    def node(self, key: NodeKey) -> NodeView: ...
    def findings(
        self,
        *,
        cluster: str | None = None,
        node: str | None = None,
        code: str | None = None,
        open_only: bool = True,
        before: str | None = None,
        limit: int | None = None,
    ) -> FindingPage: ...
    def decisions(
        self,
        *,
        cluster: str | None = None,
        node: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> DecisionPage: ...
    def hold(self, key: NodeKey, ask: Ask) -> Answer: ...
    def release(self, key: NodeKey, ask: Ask) -> Answer: ...


def server_of(ctx: click.Context) -> Server:
    """The client, made when first asked for (cli.py)."""
    shared: dict[str, Any] = ctx.obj
    made: Server = shared["api"]()
    return made


def runbook_of(ctx: click.Context) -> Callable[[str], str]:
    """Finding code → its page below docs/, as cli.py knows it; else the index of them all."""
    shared: dict[str, Any] = ctx.obj
    try:
        known: Callable[[str], str] = shared["runbook_of"]
    except KeyError:
        return lambda _: "runbooks/index.md"
    return known


def which(server: Server, text: str) -> NodeKey:
    """`node` or `cluster/node`, checked here, where it comes from outside."""
    cluster, slash, node = text.rpartition("/")
    name = node_name(node)
    return NodeKey(cluster_name(cluster) if slash else server.cluster(), name)


def node_code(standing: Standing) -> int:
    """Only a node that was seen healthy is fine."""
    return {Standing.HEALTHY: FINE, Standing.UNSEEN: COULD_NOT_TELL}.get(standing, FINDINGS)


def nodes_code(rows: Iterable[NodeRow]) -> int:
    """Findings before doubt, doubt before fine; of no node at all nothing can be told."""
    codes = {node_code(row.standing) for row in rows}
    if FINDINGS in codes:
        return FINDINGS
    return FINE if codes == {FINE} else COULD_NOT_TELL


def findings_code(findings: Iterable[FindingView]) -> int:
    return FINDINGS if any(view.open for view in findings) else FINE


def answer_code(said: Answer) -> int:
    """0: as asked, or what a dry run asked for can be done. 1: not (to be) done, and the text says
    why. 2: tried, and failed.
    """
    if said.limit:
        return FINDINGS
    if said.dry_run or said.decision is None:
        return FINE
    if said.outcome is None:
        return FINDINGS
    if said.outcome.result in {Result.DONE, Result.ALREADY}:
        return FINE
    return COULD_NOT_TELL if said.outcome.result in {Result.FAILED, Result.EXPIRED} else FINDINGS
