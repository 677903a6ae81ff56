"""The server behind real sockets: events, long polls under way at the end, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.server.site import PASSWORD, Clock, MemoryScheduler, application, bearer
from tests.store.samples import KEY, batch, finding, observation

from komainu.config import ServerConfig
from komainu.core.errors import ConfigError
from komainu.ports import Changed
from komainu.server import events, secrets, web
from komainu.server.run import address, serving
from komainu.store import SqlStore


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def _running(store: SqlStore, tls_cert: str = "", tls_key: str = "") -> AsyncIterator[str]:
    """A server on a free port; leaving ends it, and fails when it does not end."""
    config = ServerConfig(listen=f"127.0.0.1:{_free_port()}", tls_cert=tls_cert, tls_key=tls_key)
    app = application(store, MemoryScheduler(), Clock())
    stop = asyncio.Event()
    task = asyncio.create_task(serving(app, config, stop))
    scheme = "https" if tls_cert else "http"
    url = f"{scheme}://{config.listen}"
    async with httpx2.AsyncClient(verify=False) as client:
        for _ in range(500):
            with contextlib.suppress(httpx2.TransportError):
                if (await client.get(f"{url}/healthz")).status_code == 200:
                    break
            await asyncio.sleep(0.02)
    try:
        yield url
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


async def _changes(response: httpx2.Response, wanted: int) -> list[Changed]:
    found: list[Changed] = []
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            found.append(msgspec.json.decode(line[6:], type=Changed))
            if len(found) == wanted:
                break
    return found


def _write(store: SqlStore, *idents: str) -> None:
    store.receive(batch(*(finding(ident) for ident in idents)), Clock().now())


async def test_events_come_as_they_happen_and_resume_where_one_was(store: SqlStore) -> None:
    _write(store, "F-1", "F-2")
    async with _running(store) as url, httpx2.AsyncClient(headers=bearer("viewer")) as client:
        start = store.last_seq()
        async with client.stream("GET", f"{url}/api/v1/events?cluster=c&after=0") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            old = await _changes(response, 2)
        assert [one.ref for one in old] == ["F-1", "F-2"]
        resumed = {"Last-Event-ID": str(old[-1].seq)}
        async with client.stream(
            "GET", f"{url}/api/v1/events?cluster=c&after=0", headers=resumed
        ) as response:
            (newer,) = await _changes(response, 1)
            assert newer.seq > old[-1].seq
        async with client.stream("GET", f"{url}/api/v1/events") as response:
            hold = client.post(
                f"{url}/api/v1/nodes/c/n1/hold", json={"reason": "x"}, headers=bearer("operator")
            )
            answer = await hold
            assert answer.status_code == 200
            (first,) = await _changes(response, 1)
            assert first.seq > start


async def test_a_page_too_far_ahead_or_behind_is_told_to_start_anew(store: SqlStore) -> None:
    async with _running(store) as url, httpx2.AsyncClient(headers=bearer("viewer")) as client:
        async with client.stream("GET", f"{url}/api/v1/events?after=999999") as response:
            async for line in response.aiter_lines():
                assert line == "event: reset"
                break
        _write(store, "F-1")
        store.prune(Clock().now() + timedelta(hours=1))
        async with client.stream("GET", f"{url}/api/v1/events?after=0") as response:
            async for line in response.aiter_lines():
                assert line == "event: reset"
                break
        answer = await client.get(f"{url}/api/v1/events?after=x")
        assert answer.status_code == 400


async def test_a_body_that_never_arrives_holds_no_connection(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "BODY_S", 0.3)
    async with _running(store) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        head = "Host: x\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n{"
        writer.write(f"POST /api/v1/login HTTP/1.1\r\n{head}".encode())
        answer = await asyncio.wait_for(reader.read(), 5)  # to the end: the server closes
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"too-slow"' in answer


@contextlib.asynccontextmanager
async def _busy(store: SqlStore, url: str) -> AsyncIterator[None]:
    """A node that reports something all the time."""
    now = Clock().now()
    store.put_join_token(secrets.token_hash("j"), KEY.cluster, 1, now + timedelta(hours=1), now)

    async def report() -> None:
        async with httpx2.AsyncClient() as node:
            asked = {"join_token": "j", "cluster": KEY.cluster, "node": KEY.node}
            joined = (await node.post(f"{url}/api/v1/enrol", json=asked)).json()
            headers = {"Authorization": f"Bearer {joined['node_token']}"}
            for number in range(10_000):
                body = msgspec.json.encode(batch(observations=(observation(f"O-{number}"),)))
                sent = await node.post(f"{url}/api/v1/batches", content=body, headers=headers)
                assert sent.status_code == 200
                await asyncio.sleep(0.02)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        assert not reporting.done()
        reporting.cancel()
        await asyncio.wait([reporting])


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_a_stream_beats_on_time_and_ends_with_its_session(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """Constant traffic once kept a stream of someone long logged out alive, without a heartbeat."""
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.3)
    async with (
        _running(store) as url,
        _busy(store, url) if busy else contextlib.nullcontext(),
        httpx2.AsyncClient(timeout=10) as client,
    ):
        login = {"user": "viewer", "password": PASSWORD}
        csrf = (await client.post(f"{url}/api/v1/login", json=login)).json()["csrf"]
        async with client.stream("GET", f"{url}/api/v1/events?after=0") as response:
            lines = response.aiter_lines()
            async with asyncio.timeout(5):
                while await anext(lines) != ": still here":
                    pass
            out = await client.post(f"{url}/api/v1/logout", headers={"X-Komainu-Csrf": csrf})
            assert out.status_code == 204
            async with asyncio.timeout(5):
                async for _ in lines:  # to its end
                    pass


async def test_a_removed_account_loses_its_streams(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.3)
    async with (
        _running(store) as url,
        httpx2.AsyncClient(headers=bearer("viewer")) as client,
        client.stream("GET", f"{url}/api/v1/events") as response,
    ):
        await asyncio.to_thread(store.drop_user, "viewer", Clock().now())
        async with asyncio.timeout(5):
            async for _ in response.aiter_lines():
                pass


async def test_one_person_does_not_take_all_streams(store: SqlStore) -> None:
    async with _running(store) as url, contextlib.AsyncExitStack() as pages:
        client = await pages.enter_async_context(httpx2.AsyncClient())

        async def opened(role: str) -> httpx2.Response:
            asked = client.stream("GET", f"{url}/api/v1/events", headers=bearer(role))
            return await pages.enter_async_context(asked)

        mine = [await opened("viewer") for _ in range(events.MOST_OF_ONE)]
        assert {one.status_code for one in mine} == {200}
        assert (await opened("viewer")).status_code == 429
        assert (await opened("admin")).status_code == 200
        await mine[0].aclose()
        for _ in range(250):
            if (await opened("viewer")).status_code == 200:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("a page closed left no room for another")


async def test_events_need_a_login(store: SqlStore) -> None:
    async with _running(store) as url, httpx2.AsyncClient() as client:
        assert (await client.get(f"{url}/api/v1/events")).status_code == 401


async def test_the_server_ends_in_time_with_streams_and_waits_open(store: SqlStore) -> None:
    async with httpx2.AsyncClient(headers=bearer("viewer"), timeout=30) as client:
        async with _running(store) as url:
            response = await client.send(
                client.build_request("GET", f"{url}/api/v1/events"), stream=True
            )
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 8
        await response.aclose()


async def test_two_servers_cannot_have_one_address(store: SqlStore) -> None:
    async with _running(store) as url:
        config = ServerConfig(listen=url.removeprefix("http://"))
        app = application(store, MemoryScheduler(), Clock())
        with pytest.raises(ConfigError, match="cannot listen on"):
            await serving(app, config, asyncio.Event())


async def test_with_a_certificate_the_server_speaks_tls_only(
    store: SqlStore, tmp_path: Path
) -> None:
    openssl = shutil.which("openssl")
    assert openssl, "openssl is missing. Install it with: apt-get install -y openssl"
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    ask = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2 -subj /CN=komainu"
    await asyncio.to_thread(
        subprocess.run, [openssl, *ask.split()], check=True, capture_output=True
    )
    running = _running(store, tls_cert=str(cert), tls_key=str(key))
    async with running as url, httpx2.AsyncClient(verify=False) as client:
        answer = await client.get(f"{url}/healthz")
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
        with pytest.raises(httpx2.TransportError):
            await client.get(url.replace("https", "http") + "/healthz")


@pytest.mark.parametrize("listen", ["8470", "host:", "host:99999", ":8470", "host:x"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="expected ADDRESS:PORT"):
        address(listen)


def test_an_ipv6_address_is_understood() -> None:
    assert address("[::1]:8470") == ("::1", 8470)
