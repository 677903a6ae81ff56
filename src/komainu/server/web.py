"""HTTP around our Structs: JSON answers, JSON errors, bounded bodies, headers on everything."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from komainu.console.frame import HEADERS
from komainu.core.bounds import holds_nul
from komainu.core.errors import InputError, KomainuError, NotAllowed, StorageError
from komainu.core.views import Columns
from komainu.server import columns

log = structlog.get_logger()
Endpoint = Callable[[Request], Awaitable[Response]]
BODY_S = 10.0
"""How long a request's body may take to arrive: whoever holds it back holds a connection."""
Read = TypeVar("Read")
_encode = msgspec.json.Encoder().encode


class Refused(Exception):
    """An answer other than 200 that is not a KomainuError: no login, too fast, too large."""

    def __init__(self, status: int, code: str, message: str, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_s = status, code, retry_s


def answer(value: object) -> Response:
    """A Struct (or list of them) as JSON; columns as columns; None as 204."""
    if isinstance(value, Response):
        return value
    if value is None:
        return Response(status_code=204)
    if isinstance(value, Columns):
        return Response(columns.encode(value), media_type=columns.MEDIA_TYPE)
    return Response(_encode(value), media_type="application/json")


def failure(status: int, code: str, message: str) -> Response:
    said = {"error": {"code": code, "message": message, "status": status}}
    return Response(_encode(said), status_code=status, media_type="application/json")


def _failed(error: Refused | InputError | NotAllowed) -> Response:
    """What a refusal is told as: in the words it was raised with."""
    if isinstance(error, Refused):
        response = failure(error.status, error.code, str(error))
        if error.retry_s is not None:
            response.headers["Retry-After"] = str(error.retry_s)
        if error.status == 408:
            response.headers["Connection"] = "close"
        return response
    if isinstance(error, InputError):
        return failure(400, "bad-request", str(error))
    return failure(403, "not-allowed", str(error))


def _failed_here(request: Request, error: Exception) -> Response:
    """A failure of ours: what it was stands in the log alone, since it may quote SQL and addresses."""
    number = f"R-{secrets.token_hex(6)}"
    lost = isinstance(error, StorageError)
    log.warning(
        "request_failed",
        request=number,
        path=request.url.path,
        why=f"{type(error).__name__}: {error}",
    )
    what = "the server could not reach its store; try again" if lost else "the server failed"
    said = f"{what}. Its log says why, at request_failed request={number}"
    response = failure(503 if lost else 500, "storage" if lost else "failed", said)
    if lost:
        response.headers["Retry-After"] = "1"
    return response


def said_plainly(endpoint: Endpoint) -> Endpoint:
    """`endpoint` with its errors told as JSON. KeyError means: there is no such thing."""

    async def told(request: Request) -> Response:
        try:
            _without_nul(request)
            return await endpoint(request)
        except KeyError as error:
            return failure(404, "not-found", f"there is no {error.args[0]} here")
        except (Refused, InputError, NotAllowed) as error:
            return _failed(error)
        except KomainuError as error:
            return _failed_here(request, error)
        except ClientDisconnect:
            return Response(status_code=499)

    return told


async def http_failed(request: Request, error: Exception) -> Response:
    """Starlette's own errors (no such route, wrong method) in our shape."""
    if not isinstance(error, HTTPException):
        return _failed_here(request, error)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "failed")
    return failure(error.status_code, code, str(error.detail))


async def body_of(request: Request, limit: int) -> bytes:
    """The body, or Refused as soon as it is known to be too large (413) or too slow (408)."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(request, limit)
    except TimeoutError as error:
        raise Refused(408, "too-slow", f"the request did not arrive within {BODY_S:g} s") from error


async def asked_in(request: Request, limit: int) -> bytes:
    """The body of what a person or a command asks, or InputError where a text in it holds NUL."""
    body = await body_of(request, limit)
    if holds_nul(body):
        raise InputError("a text of the request holds the character NUL, which nothing here does")
    return body


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def read(decode: Callable[[bytes], Read], body: bytes, what: str) -> Read:
    """`body` as what `decode` reads, or InputError: not JSON, of another form, or nested too deeply."""
    try:
        return decode(body)
    except RecursionError as error:
        raise InputError(f"{what} cannot be read: it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{what} cannot be read: {error}") from error


def _without_nul(request: Request) -> None:
    """InputError for the character NUL in a path or a filter: no name holds it, and PostgreSQL cannot
    even be asked for it. (Of half a surrogate pair only U+FFFD is left by now.)
    """
    asked = [*request.path_params.values(), *request.query_params.values()]
    if any("\x00" in str(text) for text in asked):
        raise InputError("the address holds the character NUL (%00), which no name here does")


def _too_large(limit: int) -> Refused:
    return Refused(413, "too-large", f"the request is larger than {limit} bytes")


class Headers:
    """Our headers on every answer, whichever route gave it; nothing of the API is cached."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["scheme"] == "https":
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if scope["path"].startswith("/api/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, with_headers)
