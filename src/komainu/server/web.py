"""HTTP around our Structs: JSON answers, JSON errors, bounded bodies, headers on everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from komainu.console.frame import HEADERS
from komainu.core.errors import InputError, KomainuError, NotAllowed, StorageError
from komainu.core.views import Columns
from komainu.server import columns

log = structlog.get_logger()
Endpoint = Callable[[Request], Awaitable[Response]]
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


def _failed(error: Exception) -> Response:
    """What a failure is told as; only what we raise on purpose is told in its own words."""
    if isinstance(error, Refused):
        response = failure(error.status, error.code, str(error))
        if error.retry_s is not None:
            response.headers["Retry-After"] = str(error.retry_s)
        return response
    if isinstance(error, InputError):
        return failure(400, "bad-request", str(error))
    if isinstance(error, NotAllowed):
        return failure(403, "not-allowed", str(error))
    if isinstance(error, StorageError):
        response = failure(503, "storage", str(error))
        response.headers["Retry-After"] = "1"
        return response
    return failure(500, "failed", str(error))


def said_plainly(endpoint: Endpoint) -> Endpoint:
    """`endpoint` with its errors told as JSON. KeyError means: there is no such thing."""

    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except KeyError as error:
            return failure(404, "not-found", f"there is no {error.args[0]} here")
        except (Refused, InputError, NotAllowed) as error:
            return _failed(error)
        except KomainuError as error:
            log.warning("request_failed", path=request.url.path, why=str(error))
            return _failed(error)
        except ClientDisconnect:
            return Response(status_code=499)

    return told


async def http_failed(request: Request, error: Exception) -> Response:
    """Starlette's own errors (no such route, wrong method) in our shape."""
    del request
    if not isinstance(error, HTTPException):
        return failure(500, "failed", "the server failed; its log says why")
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "failed")
    return failure(error.status_code, code, str(error.detail))


async def body_of(request: Request, limit: int) -> bytes:
    """The body, or Refused (413) as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


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
