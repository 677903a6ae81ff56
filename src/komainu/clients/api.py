"""Komainu's own API, as the command line asks it (core/views.py lists the routes).

Synchronous, over httpx2: a command asks once or twice and ends. Every failure is a ServerError that
says what to do next; a command then exits 2, since it could not tell.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from komainu.core.errors import ConfigError, InputError, NotAllowed, ServerError
from komainu.core.names import ClusterName, NodeKey, cluster_name
from komainu.core.views import (
    Answer,
    Ask,
    ClusterView,
    DecisionPage,
    FindingPage,
    Me,
    NodeRow,
    NodeView,
)

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 60.0
"""A hold takes up to four scheduler calls of 10 s each (`scheduler_timeout_s`), and a release waits 4 s
for its node besides. Giving up sooner would call undone what the server is still doing."""
_API = "/api/v1"
_T = TypeVar("_T")


class ClientSettings(Protocol):
    """The `[client]` part of komainu.toml."""

    @property
    def server(self) -> str: ...
    @property
    def token_file(self) -> Path: ...
    @property
    def cluster(self) -> str: ...
    @property
    def ca_file(self) -> str: ...


class _Said(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Error(msgspec.Struct, frozen=True):
    error: _Said = _Said()


class Api:
    """One server, asked in the name of one person."""

    def __init__(
        self, settings: ClientSettings, *, transport: httpx2.BaseTransport | None = None
    ) -> None:
        """`transport`: another way to the server than the network (tests)."""
        self._settings = settings
        self._transport = transport
        self._opened: httpx2.Client | None = None

    def me(self) -> Me:
        return self._get("/me", Me)

    def clusters(self) -> list[ClusterView]:
        return self._get("/clusters", list[ClusterView])

    def cluster(self) -> ClusterName:
        """The cluster meant when none is named: the configured one, else the only one there is."""
        if self._settings.cluster:
            return cluster_name(self._settings.cluster)
        names = sorted(view.cluster for view in self.clusters())
        if len(names) != 1:
            raise InputError(
                f"which cluster? The server watches {len(names)} ({', '.join(names) or 'none'}). "
                f"Write CLUSTER/NODE, or set `client.cluster` in komainu.toml."
            )
        return cluster_name(names[0])

    def nodes(self, cluster: str | None = None) -> list[NodeRow]:
        return self._get("/nodes", list[NodeRow], {"cluster": cluster})

    def node(self, key: NodeKey) -> NodeView:
        return self._get(_path(key), NodeView)

    def findings(
        self,
        *,
        cluster: str | None = None,
        node: str | None = None,
        code: str | None = None,
        open_only: bool = True,
        before: str | None = None,
        limit: int | None = None,
    ) -> FindingPage:
        """One page, newest first. All clusters when none is named."""
        asked = {
            "cluster": cluster,
            "node": node,
            "code": code,
            "open": "true" if open_only else None,
            "before": before,
            "limit": None if limit is None else str(limit),
        }
        return self._get("/findings", FindingPage, asked)

    def decisions(
        self,
        *,
        cluster: str | None = None,
        node: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> DecisionPage:
        """One page, newest first. All clusters when none is named."""
        asked = {
            "cluster": cluster,
            "node": node,
            "before": before,
            "limit": None if limit is None else str(limit),
        }
        return self._get("/decisions", DecisionPage, asked)

    def hold(self, key: NodeKey, ask: Ask) -> Answer:
        return self._request("POST", f"{_path(key)}/hold", Answer, body=msgspec.json.encode(ask))

    def release(self, key: NodeKey, ask: Ask) -> Answer:
        return self._request("POST", f"{_path(key)}/release", Answer, body=msgspec.json.encode(ask))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _get(self, path: str, kind: type[_T], query: Mapping[str, str | None] | None = None) -> _T:
        return self._request("GET", path, kind, query=query)

    def _request(
        self,
        method: str,
        path: str,
        kind: type[_T],
        *,
        query: Mapping[str, str | None] | None = None,
        body: bytes | None = None,
    ) -> _T:
        client = self._client()
        import httpx2

        params = {name: value for name, value in (query or {}).items() if value is not None}
        where = f"server {self._settings.server}"
        try:
            response = client.request(method, _API + path, params=params, content=body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ServerError(
                f"{where} did not answer {path}: {type(error).__name__}: {error}. Check that "
                f"`komainu server` runs there and that `client.server` in komainu.toml is right."
            ) from error
        if response.status_code != 200:
            raise _refused(where, path, response.status_code, response.content, self._token_file)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise ServerError(
                f"{where} answered {path} with something else than expected: {error}. Check that "
                f"`client.server` names a Komainu server of the same release."
            ) from error

    @property
    def _token_file(self) -> Path:
        return self._settings.token_file.expanduser()

    def _client(self) -> httpx2.Client:
        if self._opened is None:
            try:
                import httpx2
            except ImportError as error:
                raise ServerError(
                    "asking the server needs httpx2, which is not installed here. "
                    "Install the wheel with its server part, as docs/start/install.md says."
                ) from error
            token, trust = _token(self._token_file), _trust(self._settings.ca_file)
            try:
                self._opened = httpx2.Client(
                    base_url=self._settings.server,
                    headers={
                        "Authorization": f"Bearer {token}",
                        "Content-Type": "application/json",
                    },
                    timeout=TIMEOUT_S,
                    verify=trust,
                    transport=self._transport,
                    trust_env=False,
                )
            except httpx2.InvalidURL as error:
                raise ConfigError(
                    f"client.server {self._settings.server!r} is no address: {error}. "
                    f"Expected something like https://komainu.example.org:8470."
                ) from error
        return self._opened


def _path(key: NodeKey) -> str:
    return f"/nodes/{quote(key.cluster, safe='')}/{quote(key.node, safe='')}"


def _token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise ServerError(
            f"no API token: {path} cannot be read ({error.strerror}). Make one on the server with "
            f"`komainu server token YOUR_NAME` and put it there, mode 0600 "
            f"(or name another file as `client.token_file` in komainu.toml)."
        ) from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ServerError(
            f"no API token: {path} holds no usable token, expected one line of plain characters. "
            f"Make one on the server with `komainu server token YOUR_NAME`."
        )
    return token


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(
            f"client.ca_file {ca_file} cannot be used: {error}. Expected a PEM file."
        ) from error


def _refused(
    where: str, path: str, status: int, content: bytes, token_file: Path
) -> ServerError | NotAllowed | InputError:
    try:
        said = msgspec.json.decode(content, type=_Error).error.message
    except msgspec.DecodeError:
        said = content[:200].decode("utf-8", "replace")
    said = said.rstrip(". ") or "no reason given"
    if status == 401:
        return NotAllowed(
            f"{where} does not accept the token in {token_file}: {said}. Make a new one there with "
            f"`komainu server token YOUR_NAME`."
        )
    if status == 403:
        return NotAllowed(f"{where} does not allow this to you: {said}.")
    if status in {400, 404, 409, 422}:
        return InputError(f"{where}: {said}.")
    return ServerError(
        f"{where} failed on {path}: status {status}, expected 200: {said}. "
        f"Its log says more (journalctl -u komainu-server)."
    )
