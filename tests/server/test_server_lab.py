from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from tests.server.site import Clock, MemoryScheduler, application, bearer

from komainu.core.names import ClusterName, NodeName
from komainu.server.lab import OfferedFault
from komainu.store import SqlStore


class Strings:
    """A lab that writes down what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def faults(self) -> list[OfferedFault]:
        return [OfferedFault(id="gpu-lost", title="A GPU falls off the bus")]

    async def inject(self, cluster: ClusterName, node: NodeName, gpu: int, fault: str) -> None:
        if fault != "gpu-lost":
            raise KeyError(f"fault {fault}")
        self.asked.append(("inject", cluster, node, gpu, fault))

    async def repair(self, cluster: ClusterName, node: NodeName) -> None:
        self.asked.append(("repair", cluster, node))


@pytest.fixture
def lab() -> Strings:
    return Strings()


@pytest.fixture
def opened(
    store: SqlStore, scheduler: MemoryScheduler, clock: Clock, lab: Strings
) -> Iterator[TestClient]:
    with TestClient(application(store, scheduler, clock, lab=lab)) as client:
        yield client


STRIKE = {"cluster": "c", "node": "n0", "gpu": 3, "fault": "gpu-lost"}


def test_a_visitor_may_break_and_mend_the_make_believe_cluster(
    opened: TestClient, lab: Strings
) -> None:
    offered = opened.get("/api/v1/lab/faults", headers=bearer("viewer")).json()
    assert offered == [{"id": "gpu-lost", "title": "A GPU falls off the bus", "text": ""}]
    operator = bearer("operator")
    assert opened.post("/api/v1/lab/inject", json=STRIKE, headers=operator).status_code == 204
    mend = {"cluster": "c", "node": "n0"}
    assert opened.post("/api/v1/lab/repair", json=mend, headers=operator).status_code == 204
    assert lab.asked == [("inject", "c", "n0", 3, "gpu-lost"), ("repair", "c", "n0")]
    assert opened.get("/api/v1/clusters", headers=operator).json()[0]["lab"] is True


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**STRIKE, "fault": "strange"}, 404),
        ({**STRIKE, "gpu": 256}, 400),
        ({**STRIKE, "node": "../x"}, 400),
        ({**STRIKE, "more": 1}, 400),
        ({}, 400),
    ],
)
def test_what_cannot_be_struck_is_refused(
    opened: TestClient, lab: Strings, body: dict[str, object], status: int
) -> None:
    answer = opened.post("/api/v1/lab/inject", json=body, headers=bearer("operator"))
    assert (answer.status_code, lab.asked) == (status, [])


def test_a_viewer_breaks_nothing(opened: TestClient, lab: Strings) -> None:
    for path in ("inject", "repair"):
        answer = opened.post(f"/api/v1/lab/{path}", json=STRIKE, headers=bearer("viewer"))
        assert answer.status_code == 403
    assert lab.asked == []


def test_a_server_of_real_clusters_offers_nothing_to_break(client: TestClient) -> None:
    for path in ("inject", "repair"):
        answer = client.post(f"/api/v1/lab/{path}", json=STRIKE, headers=bearer("admin"))
        assert answer.status_code == 404
    assert client.get("/api/v1/clusters", headers=bearer("admin")).json()[0]["lab"] is False
