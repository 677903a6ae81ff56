"""The command line's client: what it asks, and what it says when no answer comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import msgspec
import pytest

from komainu.clients.api import Api
from komainu.config import ClientConfig
from komainu.core.errors import ConfigError, InputError, KomainuError, NotAllowed, ServerError
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.views import Ask, FindingPage

KEY = NodeKey(ClusterName("c"), NodeName("n1"))
Handler = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret-token\n")
    return path


def api(token: Path, handler: Handler, **settings: str) -> Api:
    config = ClientConfig(server="http://komainu.example", token_file=token, **settings)
    return Api(config, transport=httpx2.MockTransport(handler))


def says(status: int, body: object) -> Handler:
    return lambda _: httpx2.Response(status, content=msgspec.json.encode(body))


def test_a_request_carries_the_persons_token_and_only_what_was_asked(token: Path) -> None:
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        page = FindingPage(findings=[], total=0, more=False)
        return httpx2.Response(200, content=msgspec.json.encode(page))

    client = api(token, handler)
    client.findings(cluster="c", code="GPU-XID-79", limit=5)
    client.findings(open_only=False)
    client.close()
    assert [str(request.url) for request in seen] == [
        "http://komainu.example/api/v1/findings?cluster=c&code=GPU-XID-79&open=true&limit=5",
        "http://komainu.example/api/v1/findings",
    ]
    assert seen[0].headers["Authorization"] == "Bearer secret-token"


def test_a_hold_is_posted_to_its_node(token: Path) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.method, request.url.path, request.content))
        return httpx2.Response(409, content=b'{"error": {"message": "no room"}}')

    client = api(token, handler)
    with pytest.raises(InputError, match=r"no room"):
        client.hold(KEY, Ask(reason="smoke", dry_run=True))
    client.close()
    method, path, body = seen[0]
    assert (method, path) == ("POST", "/api/v1/nodes/c/n1/hold")
    assert msgspec.json.decode(body, type=Ask) == Ask(reason="smoke", dry_run=True)


def test_the_only_cluster_is_meant_when_none_is_named(token: Path) -> None:
    def clusters(*names: str) -> Handler:
        guard = {
            "out": 0,
            "limit": 1,
            "removed_in_window": 0,
            "max_in_window": 1,
            "window_s": 1,
            "tripped_at": None,
        }
        rest = {"nodes": 1, "counts": {}, "guard": guard, "jobs_running": 0, "jobs_pending": 0}
        more = {"policy_version": "", "advise_only": False}
        return says(200, [{"cluster": name} | rest | more for name in names])

    one = api(token, clusters("a"))
    two = api(token, clusters("a", "b"))
    named = api(token, clusters("a", "b"), cluster="b")
    assert one.cluster() == "a"
    assert named.cluster() == "b"
    with pytest.raises(InputError, match=r"watches 2 \(a, b\). Write CLUSTER/NODE"):
        two.cluster()
    for client in (one, two, named):
        client.close()


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, NotAllowed, "Make a new one there with `komainu server token"),
        (403, NotAllowed, "does not allow this to you: why"),
        (404, InputError, "why"),
        (500, ServerError, "failed on /me: status 500, expected 200: why. Its log says more"),
    ],
)
def test_a_refusal_says_what_to_do_next(
    token: Path, status: int, kind: type[KomainuError], words: str
) -> None:
    client = api(token, says(status, {"error": {"code": "x", "message": "why", "status": status}}))
    with pytest.raises(kind) as caught:
        client.me()
    client.close()
    assert words in str(caught.value)


def test_something_that_is_no_komainu_server_is_told_so(token: Path) -> None:
    client = api(token, lambda _: httpx2.Response(200, content=b"<html>"))
    with pytest.raises(ServerError, match="names a Komainu server of the same release"):
        client.me()
    client.close()


def test_no_server_is_told_with_what_to_check(token: Path) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    client = api(token, handler)
    with pytest.raises(ServerError, match=r"did not answer /me: ConnectError.*client\.server"):
        client.me()
    client.close()


def test_without_a_token_file_it_says_how_to_get_one(tmp_path: Path) -> None:
    client = api(tmp_path / "none", says(200, {}))
    with pytest.raises(ServerError, match=r"komainu server token YOUR_NAME.*mode 0600"):
        client.me()


@pytest.mark.parametrize("content", ["", "two words", "spåm"])
def test_a_token_file_without_a_token_is_told_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content, "utf-8")
    with pytest.raises(ServerError, match="holds no usable token"):
        api(path, says(200, {})).me()


def test_a_ca_file_that_cannot_be_used_is_a_configuration_error(token: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.ca_file /nowhere"):
        api(token, says(200, {}), ca_file="/nowhere").me()
