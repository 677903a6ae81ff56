"""Whose is a node's state in the scheduler? We write only where the answer is: ours, or nobody's.

Acting asks before and after: `before` says whether there is anything to do, `after` whether it was
done. Both look at the scheduler's full state, never at what we remember of it.
"""

from __future__ import annotations

import msgspec

from komainu.core.decision import REASON_PREFIX, Action, Decision, Result
from komainu.core.node import SchedulerNode


class Found(msgspec.Struct, frozen=True):
    """What was found against what the decision expects, as an outcome."""

    result: Result
    detail: str = ""


def before(decision: Decision, node: SchedulerNode | None) -> Found | None:
    """The outcome without acting; None when acting is right."""
    if node is None:
        return Found(Result.FAILED, "the scheduler does not know this node")
    if decision.action is Action.RESUME:
        return _before_resume(decision, node)
    if _bears(decision, node):
        return Found(Result.ALREADY, f"found {_state(node)}, reason ours")
    if not node.out:
        # Slurm drained it for our refusal and someone gave it back since: it is no longer there.
        gone = decision.action is Action.ADOPT
        return Found(Result.FOREIGN, f"found {_state(node)}, expected DRAIN") if gone else None
    if node.ours or (decision.action is Action.ADOPT and node.gate_made):
        return None
    return _foreign(node)


def _before_resume(decision: Decision, node: SchedulerNode) -> Found | None:
    if not node.out:
        return Found(Result.ALREADY, f"found {_state(node)}, in service")
    return None if _may_clear(decision, node) else _foreign(node)


def after(decision: Decision, was: SchedulerNode | None, node: SchedulerNode | None) -> Found:
    """What acting has come to. `was` is the node before."""
    if node is None:
        return Found(Result.FAILED, "the scheduler no longer knows this node")
    if decision.action is Action.RESUME:
        return _after_resume(decision, node)
    if _bears(decision, node):
        note = f"; its note {was.reason[:80]!r} gave way" if was and _noted(was) else ""
        return Found(Result.DONE, f"now {_state(node)}{note}")
    if node.out and not node.ours:
        return _foreign(node)
    return Found(Result.FAILED, f"found {_state(node)} after drain, expected our DRAIN")


def _after_resume(decision: Decision, node: SchedulerNode) -> Found:
    """In service, by the same test as before; out still is either ours, to be tried again, or another's
    doing, such as a node that is down.
    """
    if not node.out:
        return Found(Result.DONE, f"now {_state(node)}")
    if _may_clear(decision, node):
        return Found(Result.FAILED, f"still {_state(node)} after resume, expected it in service")
    return _foreign(node)


def _may_clear(decision: Decision, node: SchedulerNode) -> bool:
    return node.ours or (decision.job is not None and node.gate_made)


def _bears(decision: Decision, node: SchedulerNode) -> bool:
    return node.drained and node.reason.startswith(f"{REASON_PREFIX}{decision.id}:")


def _noted(node: SchedulerNode) -> bool:
    """Whether somebody had written a note on a node that was in service."""
    return bool(node.reason) and not node.ours and not node.out


def _foreign(node: SchedulerNode) -> Found:
    by = f" by {node.reason_by}" if node.reason_by else ""
    return Found(Result.FOREIGN, f"found {_state(node)} with reason {node.reason[:80]!r}{by}")


def _state(node: SchedulerNode) -> str:
    return "+".join([node.state, *sorted(node.flags)])
