from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route
from tests.server.site import Clock, MemoryScheduler, application

from komainu.core.names import ClusterName, NodeName
from komainu.server.lab import OfferedFault
from komainu.store import SqlStore

ROOT = Path(__file__).parents[2]


class _Lab:
    def faults(self) -> list[OfferedFault]:
        return [OfferedFault(id="gpu-lost", title="A GPU is lost")]

    async def inject(self, cluster: ClusterName, node: NodeName, gpu: int, fault: str) -> None:
        raise NotImplementedError

    async def repair(self, cluster: ClusterName, node: NodeName) -> None:
        raise NotImplementedError


def test_every_route_is_documented_and_every_documented_route_exists(
    store: SqlStore, scheduler: MemoryScheduler, clock: Clock
) -> None:
    app = application(store, scheduler, clock, lab=_Lab())
    routes = {
        f"{next(iter((route.methods or set()) - {'HEAD'}))} {route.path}"
        for route in app.routes
        if isinstance(route, Route) and (route.path.startswith("/api/") or route.path == "/healthz")
    }
    text = (ROOT / "docs/reference/api.md").read_text()
    assert set(re.findall(r"^\| `((?:GET|POST) [^`]+)` \|", text, re.MULTILINE)) == routes


def test_every_error_code_is_documented() -> None:
    text = (ROOT / "docs/reference/api.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src/komainu/server").glob("*.py"))
    found = set(re.findall(r'(?:Refused\(\s*|failure\()\d{3}, "([a-z-]+)"', source))
    assert len(found) > 8
    assert {code for code in found if code not in text} == set()


def test_the_unit_of_the_guide_is_the_one_deployed() -> None:
    unit = (ROOT / "deploy/systemd/komainu-server.service").read_text()
    assert "ExecStart=/opt/komainu/bin/komainu server\n" in unit
    assert "Restart=always" in unit
    assert "komainu-server.service" in (ROOT / "docs/guides/server.md").read_text()


def test_the_guides_configuration_can_be_read() -> None:
    from komainu.config import parse

    guide = (ROOT / "docs/guides/server.md").read_text()
    for example in re.findall(r"```toml\n(.*?)```", guide, re.DOTALL):
        assert parse(example, "guide") is not None
