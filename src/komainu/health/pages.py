"""Pages of what is wrong: findings, and one finding."""

from __future__ import annotations

from komainu.core.errors import InputError
from komainu.core.views import FindingPage, FindingView, finding_view
from komainu.ports import Asked, Desk, Page

MOST = 500
_OPEN = {"true": True, "1": True, "false": False, "0": False, "": None, "all": None}


def findings(desk: Desk, asked: Asked) -> FindingPage:
    """Newest first; `open=true` shows open ones, `open=false` released ones, else both."""
    cluster, node = asked.cluster(), asked.node()
    code = asked.query.get("code") or None
    opened = _open(asked.query.get("open", ""))
    limit = asked.number("limit", default=100, most=MOST)
    found = desk.ledger.finding_records(
        cluster, node, code=code, open_only=opened, before=asked.before(), limit=limit + 1
    )
    shown, more = found[:limit], len(found) > limit
    return FindingPage(
        findings=[finding_view(record) for record in shown],
        total=desk.ledger.count_findings(cluster, node, code=code, open_only=opened),
        more=more,
        before=str(shown[-1].number) if more else None,
    )


def finding(desk: Desk, asked: Asked) -> FindingView:
    record = desk.ledger.finding_record(asked.path["finding"])
    if record is None:
        raise KeyError(f"finding {asked.path['finding'][:80]}")
    return finding_view(record)


def _open(text: str) -> bool | None:
    if text not in _OPEN:
        raise InputError(f"open={text[:40]!r} cannot be used: expected true, false or all")
    return _OPEN[text]


PAGES = (
    Page(method="GET", path="/findings", answer=findings),
    Page(method="GET", path="/findings/{finding}", answer=finding),
)
