"""`komainu agent` and `komainu check`: the node's part of the command line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from komainu.core.verdict import Verdict
from komainu.core.views import SEVERITY_WORDS

if TYPE_CHECKING:
    from komainu.agent.look_now import LookNow
    from komainu.config import AgentConfig

EXIT = {Verdict.OK: 0, Verdict.FAULT: 1, Verdict.UNKNOWN: 2, Verdict.SKIPPED: 2}


@click.command()
@click.option("--once", is_flag=True, help="Look once, tell the server, and exit 0, 1 or 2.")
@click.option(
    "--accept-gpus",
    is_flag=True,
    help="Forget GPUs seen before: one was taken out for good. Then release the node.",
)
@click.option(
    "--accept-state",
    is_flag=True,
    help="Let go of a FAULT whose reasons were lost with the agent's state (left-verdict).",
)
@click.pass_context
def agent(ctx: click.Context, *, once: bool, accept_gpus: bool, accept_state: bool) -> None:
    """Run this node's agent.

    Follows the kernel log, keeps the verdict the gate reads, and reports to the server. Ends on
    SIGTERM or SIGINT. Normally started by systemd (deploy/systemd/komainu-agent.service).
    """
    config: Path | None = ctx.find_root().params.get("config")
    arguments = [sys.executable, "-m", "komainu.agent"]
    arguments += [str(config)] if config else []
    arguments += ["--once"] if once else []
    arguments += ["--accept-gpus"] if accept_gpus else []
    arguments += ["--accept-state"] if accept_state else []
    # The same process under another program: the agent must not carry the command line's memory.
    os.execv(sys.executable, arguments)  # noqa: S606  no shell is what is wanted


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def check(ctx: click.Context, *, as_json: bool) -> None:
    """Look at this node, now.

    Reads the kernel log once and makes every check. Changes nothing, needs no running agent and
    disturbs none. Exit codes: 0 fine, 1 a fault, 2 could not tell.
    """
    config: AgentConfig = ctx.obj["config"].agent
    found = asyncio.run(_look(config))
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        click.echo("\n".join(_lines(found)))
    ctx.exit(EXIT[found.verdict.verdict])


async def _look(config: AgentConfig) -> LookNow:
    from komainu.agent.look_now import look_now
    from komainu.agent.probe import SysProbe
    from komainu.clients.clock import RealClock
    from komainu.clients.kmsg import kernel_log

    return await look_now(config, kernel_log(config.kernel_log), SysProbe(config.rack), RealClock())


def _lines(found: LookNow) -> list[str]:
    said = found.verdict.message
    lines = [f"{found.cluster}/{found.node} {found.verdict.verdict}{': ' if said else ''}{said}"]
    lines += [
        f"  {name:<12} {look.verdict:<8} {look.detail}".rstrip()
        for name, look in found.checks.items()
    ]
    lines += [
        f"  {finding.code:<20} {SEVERITY_WORDS[finding.severity]:<9} "
        f"{finding.at:%Y-%m-%dT%H:%M:%SZ}  {finding.component}: {finding.summary}"
        for finding in found.findings
    ]
    if not found.agent_state:
        lines.append("  (no agent has kept anything here: released findings and lost GPUs unknown)")
    return lines


COMMANDS: tuple[click.Command, ...] = (agent, check)
