"""The link to the server, against a small real HTTP server."""

from __future__ import annotations

import asyncio
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from komainu.clients.server_link import HttpLink
from komainu.core.errors import ConfigError, ServerError, ServerRefused
from komainu.core.wire import Batch, Enrol, Enrolled, Reply

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class _Server:
    """Answers as told, and notes what it was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.connections = 0
        self.answer: Callable[[str, bytes], tuple[int, bytes]] = _accept
        self.hang_up = 0
        """How many kept-alive connections to close after their first reply."""
        self.released = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class _Peer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, self.headers.get("Authorization", ""), body))
                outer.hold.wait(10)
                status, answer = outer.answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                if outer.hang_up > 0:
                    outer.hang_up -= 1
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Peer)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self.hold.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _accept(path: str, body: bytes) -> tuple[int, bytes]:
    if path == "/api/v1/enrol":
        return 200, msgspec.json.encode(Enrolled(node_token="node-secret"))
    batch = msgspec.json.decode(body, type=Batch)
    return 200, msgspec.json.encode(Reply(batch=batch.id, server_time=NOW))


@pytest.fixture
def server() -> Iterator[_Server]:
    one = _Server()
    yield one
    one.close()


@pytest.fixture
def link(server: _Server, tmp_path: Path) -> Iterator[HttpLink]:
    (tmp_path / "join").write_text("join-secret\n")
    one = _link(server.address, tmp_path)
    yield one
    one.close()


def _link(address: str, folder: Path) -> HttpLink:
    return HttpLink(
        address,
        cluster="c1",
        node="n1",
        token_file=folder / "token",
        join_token_file=folder / "join",
    )


def _batch(id_: str = "B-1", wait_s: float = 0) -> Batch:
    return Batch(
        id=id_, cluster="c1", node="n1", boot_id="b", agent_version="0", sent_at=NOW, wait_s=wait_s
    )


async def test_a_node_enrols_once_and_keeps_its_token_to_itself(
    server: _Server, link: HttpLink, tmp_path: Path
) -> None:
    assert (await link.send(_batch("B-1"))).batch == "B-1"
    assert (await link.send(_batch("B-2"))).batch == "B-2"
    assert [path for path, _, _ in server.asked] == [
        "/api/v1/enrol", "/api/v1/batches", "/api/v1/batches",
    ]  # fmt: skip
    asked = msgspec.json.decode(server.asked[0][2], type=Enrol)
    assert asked == Enrol(join_token="join-secret", cluster="c1", node="n1")
    assert server.asked[1][1] == "Bearer node-secret"
    token = tmp_path / "token"
    assert token.read_text() == "node-secret\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


async def test_two_calls_at_once_enrol_once(server: _Server, link: HttpLink) -> None:
    await asyncio.gather(link.send(_batch("B-1")), link.send(_batch("B-2")))
    assert [path for path, _, _ in server.asked].count("/api/v1/enrol") == 1


async def test_a_kept_token_needs_no_join_token(server: _Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old-secret\n")
    link = _link(server.address, tmp_path)
    await link.send(_batch())
    assert server.asked[0][1] == "Bearer old-secret"
    link.close()


async def test_without_any_token_it_says_how_to_get_one(server: _Server, tmp_path: Path) -> None:
    link = _link(server.address, tmp_path)
    with pytest.raises(ServerError, match=r"not enrolled.*join-token"):
        await link.send(_batch())
    link.close()


async def test_a_join_token_is_not_spent_where_the_answer_cannot_be_kept(
    server: _Server, tmp_path: Path
) -> None:
    (tmp_path / "join").write_text("join-secret")
    link = HttpLink(
        server.address, cluster="c1", node="n1",
        token_file=tmp_path / "none" / "token", join_token_file=tmp_path / "join",
    )  # fmt: skip
    with pytest.raises(ServerError, match="could not be kept"):
        await link.send(_batch())
    assert server.asked == []
    link.close()


async def test_connections_are_kept(server: _Server, link: HttpLink) -> None:
    for number in range(6):
        await link.send(_batch(f"B-{number}"))
    assert server.connections <= 2


async def test_a_connection_closed_meanwhile_is_opened_again(
    server: _Server, link: HttpLink
) -> None:
    server.hang_up = 3
    for number in range(4):
        assert (await link.send(_batch(f"B-{number}"))).batch == f"B-{number}"


async def test_a_refused_token_says_what_to_do(server: _Server, link: HttpLink) -> None:
    server.answer = lambda path, body: _accept(path, body) if "enrol" in path else (401, b"no")
    with pytest.raises(ServerError, match=r"status 401.*remove it and put a new join token"):
        await link.send(_batch())


async def test_a_server_error_keeps_the_batch(server: _Server, link: HttpLink) -> None:
    await link.send(_batch())
    server.answer = lambda *_: (500, b'{"error": "\x1b[31mred"}')
    with pytest.raises(ServerError, match=r"status 500.*stays in the spool") as found:
        await link.send(_batch())
    assert "\x1b" not in str(found.value)


async def test_an_answer_of_another_kind_is_an_error(server: _Server, link: HttpLink) -> None:
    await link.send(_batch())
    server.answer = lambda *_: (200, b"<html>")
    with pytest.raises(ServerError, match=r"agent\.server"):
        await link.send(_batch())


async def test_nobody_listening_is_an_error_that_names_the_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    link = _link("http://127.0.0.1:1", tmp_path)
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:1 did not answer"):
        await link.send(_batch())
    link.close()


async def test_a_held_reply_does_not_hold_up_the_next_batch(
    server: _Server, link: HttpLink
) -> None:
    await link.send(_batch())

    def hold_polls(path: str, body: bytes) -> tuple[int, bytes]:
        if msgspec.json.decode(body, type=Batch).wait_s:
            server.released.wait(5)
        return _accept(path, body)

    server.answer = hold_polls
    held = asyncio.create_task(link.send(_batch("B-poll", wait_s=5)))
    await asyncio.sleep(0.05)
    assert (await asyncio.wait_for(link.send(_batch("B-now")), 2)).batch == "B-now"
    assert not held.done()
    server.released.set()
    assert (await held).batch == "B-poll"


async def test_closing_ends_a_call_under_way(server: _Server, link: HttpLink) -> None:
    await link.send(_batch())
    server.hold.clear()
    held = asyncio.create_task(link.send(_batch("B-poll", wait_s=50)))
    await asyncio.sleep(0.05)
    link.close()
    with pytest.raises(ServerError):
        await asyncio.wait_for(held, 2)


@pytest.mark.parametrize("status", [400, 413])
async def test_what_the_server_will_not_take_is_told_apart(
    server: _Server, link: HttpLink, status: int
) -> None:
    await link.send(_batch())
    server.answer = lambda *_: (status, b"no")
    with pytest.raises(ServerRefused, match=f"status {status}"):
        await link.send(_batch())


@pytest.mark.parametrize(("path", "status"), [("enrol", 400), ("batches", 403), ("batches", 503)])
async def test_a_refusal_that_is_not_of_the_batch_blames_nothing_in_it(
    server: _Server, link: HttpLink, path: str, status: int
) -> None:
    server.answer = lambda p, body: (status, b"no") if p.endswith(path) else _accept(p, body)
    with pytest.raises(ServerError) as caught:
        await link.send(_batch())
    assert not isinstance(caught.value, ServerRefused)


async def test_a_token_of_several_words_is_refused(server: _Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("two words\nX-Header: 1")
    link = _link(server.address, tmp_path)
    with pytest.raises(ServerError, match="more than one word"):
        await link.send(_batch())
    link.close()


def test_an_address_that_is_none_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.server"):
        _link("server:8470", tmp_path)


def test_a_missing_authority_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        HttpLink(
            "https://x", cluster="c", node="n", token_file=tmp_path, join_token_file=tmp_path,
            ca_file=str(tmp_path / "none"),
        )  # fmt: skip


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key beside it."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=k",
         "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path / "cert.pem"


async def test_over_tls_only_a_server_signed_by_our_authority_is_believed(
    tmp_path: Path, certificate: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = _Server(context)
    (tmp_path / "token").write_text("t")
    for ca_file, trusted in ((str(certificate), True), ("", False)):
        link = HttpLink(
            server.address.replace("http:", "https:"), cluster="c1", node="n1", ca_file=ca_file,
            token_file=tmp_path / "token", join_token_file=tmp_path / "join",
        )  # fmt: skip
        if trusted:
            assert (await link.send(_batch())).batch == "B-1"
        else:
            with pytest.raises(ServerError, match="certificate verify failed"):
                await link.send(_batch())
        link.close()
    server.close()
    assert len(server.asked) == 1
