"""The agent's way to the server: HTTP(S) with the standard library alone.

http.client blocks, so each call runs on one of two threads of our own, each with its own kept-alive
connection: one for batches, one for the long poll that orders come back on. A connection the server
closed meanwhile is opened again and the request sent once more: batches are idempotent. Everything
else that fails is a ServerError, and the agent's shipper decides when to try again.

The node's token is written once, by enrolment with a one-time join token, and read for each new
connection, so that replacing the file needs no restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from komainu.core.errors import ConfigError, ServerError, ServerRefused
from komainu.core.wire import Batch, Enrol, Enrolled, Reply

CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 15.0
"""Beyond the wait the batch itself asks for."""
REPLY_BYTES_MAX = 16 << 20
_GONE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
"""How a kept-alive connection shows that the server closed it."""
_UNACCEPTABLE = {400, 413}
"""Of a batch: something in it, or its size."""

Answer = TypeVar("Answer", Enrolled, Reply)


class HttpLink:
    """One node's link to one server."""

    def __init__(
        self,
        server: str,
        *,
        cluster: str,
        node: str,
        token_file: Path,
        join_token_file: Path,
        ca_file: str = "",
    ) -> None:
        self._server = _checked(server)
        self._cluster, self._node = cluster, node
        self._token_file, self._join_token_file = token_file, join_token_file
        self._tls = _tls(ca_file) if self._server.scheme == "https" else None
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="server-link")
        self._enrolling = threading.Lock()
        self._own = threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        self._closed = False

    async def send(self, batch: Batch) -> Reply:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, batch)

    def close(self) -> None:
        """Cut every connection, so that a long poll under way ends now, and open no other."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _send(self, batch: Batch) -> Reply:
        token = self._token()
        body = msgspec.json.encode(batch)
        return self._post("/api/v1/batches", body, Reply, token=token, wait_s=batch.wait_s)

    def _token(self) -> str:
        with self._enrolling:
            token = _secret(self._token_file)
            if token is not None:
                return token
            join = _secret(self._join_token_file)
            if join is None:
                raise ServerError(
                    f"agent is not enrolled: neither the node token {self._token_file} nor a join "
                    f"token {self._join_token_file} exists. Make one with `komainu server "
                    f"join-token` and put it there."
                )
            if not os.access(self._token_file.parent, os.W_OK):
                raise ServerError(
                    f"agent cannot enrol: {self._token_file.parent} is not writable, and the token "
                    f"it would get could not be kept. Make it writable."
                )
            asked = Enrol(join_token=join, cluster=self._cluster, node=self._node)
            answer = self._post("/api/v1/enrol", msgspec.json.encode(asked), Enrolled)
            _write_secret(self._token_file, answer.node_token)
            return answer.node_token

    def _post(
        self, path: str, body: bytes, kind: type[Answer], *, token: str = "", wait_s: float = 0
    ) -> Answer:
        try:
            status, text = self._exchange(path, body, token, wait_s)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise ServerError(
                f"server {self._server.geturl()} did not answer {path}: "
                f"{type(error).__name__}: {error}. The batch stays in the spool and is sent again."
            ) from error
        if status != 200:
            refused = kind is Reply and status in _UNACCEPTABLE
            raise (ServerRefused if refused else ServerError)(
                f"server {self._server.geturl()} refused {path} of {self._cluster}/{self._node}: "
                f"status {status}, expected 200: {_said(text)}. {self._advice(status)}"
            )
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            raise ServerError(
                f"server {self._server.geturl()} answered {path} with something else than "
                f"{kind.__name__}: {error}. Check that `agent.server` names a Komainu server."
            ) from error

    def _advice(self, status: int) -> str:
        if status in {401, 403}:
            return (
                f"The token in {self._token_file} is not accepted: remove it and put a new join "
                f"token in {self._join_token_file}."
            )
        return "The batch stays in the spool and is sent again."

    def _exchange(self, path: str, body: bytes, token: str, wait_s: float) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None:
            try:
                return self._request(connection, path, body, token, wait_s)
            except _GONE:
                self._drop()
        return self._request(self._connect(), path, body, token, wait_s)

    def _request(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: bytes,
        token: str,
        wait_s: float,
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if connection.sock is not None:
            connection.sock.settimeout(REPLY_TIMEOUT_S + wait_s)
        connection.request("POST", self._server.path.rstrip("/") + path, body, headers)
        reply = connection.getresponse()
        text = reply.read(REPLY_BYTES_MAX + 1)
        if len(text) > REPLY_BYTES_MAX:
            raise http.client.HTTPException(f"reply is over {REPLY_BYTES_MAX} bytes")
        return reply.status, text

    def _connect(self) -> http.client.HTTPConnection:
        if self._closed:
            raise ConnectionAbortedError("the agent is stopping")
        host, port = self._server.hostname or "", self._server.port
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        )
        self._open.add(connection)
        self._own.connection = connection
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _drop(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._open.discard(connection)
            self._own.connection = None


def _checked(server: str) -> SplitResult:
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"agent.server {server!r} is not usable: expected http://HOST:PORT or "
            f"https://HOST:PORT. Correct it in komainu.toml."
        )
    return parts


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(
            f"agent.ca_file {ca_file} cannot be used: {error}. It must be a PEM file of the "
            f"authority that signed the server's certificate."
        ) from error


def _secret(path: Path) -> str | None:
    try:
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ServerError(
            f"token file {path} cannot be read: {error}. Check owner and mode."
        ) from error
    if any(not "!" <= letter <= "~" for letter in text):
        raise ServerError(
            f"token file {path} holds more than one word; expected one token on one line."
        )
    return text or None


def _write_secret(path: Path, secret: str) -> None:
    """Keep the token, readable by us alone from its first moment, whole or not at all."""
    part = path.with_name(path.name + ".new")
    try:
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ServerError(
            f"node token {path} cannot be written: {error}. The join token is spent: free the disk "
            f"or the path, and enrol with a new one."
        ) from error


def _said(text: bytes) -> str:
    """What the server gave as its reason, one short printable line."""
    return ascii(text[:300].decode("utf-8", "replace"))
