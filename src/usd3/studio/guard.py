"""Who may talk to the studio, and how much they may say: token, Host, Origin, sizes and times of bodies.

Every answer goes out with headers that forbid the page to load anything from elsewhere, and others to embed it.
"""

import asyncio
import json
import math
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MOST_BYTES", "TOKEN_HEADER", "Guard", "Refused", "read_body", "read_json"]

TOKEN_HEADER = "x-usd3-token"
MOST_BYTES = 2**22
"""The largest body of a request."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_DROPPED = 2**26  # bytes that are read of a body that is too large
_BODY_SECONDS = 20.0
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is refused, with the status and the one line of the answer.

    Args:
        status: of the answer.
        line: what is wrong.
        retry_after: seconds after which the same request may succeed; None: it never does.
    """

    def __init__(self, status: int, line: str, retry_after: int | None = None):
        super().__init__(line)
        self.status, self.line, self.retry_after = status, line, retry_after

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse({"error": self.line}, self.status, headers)


class Guard:
    """Refuses requests from elsewhere and without the token, before anything of their body is read.

    Args:
        app: what answers the others.
        token: the token in the link. `/` needs it in its query, `/api/` in a header; static files need none.
    """

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        line = self._objection(scope)
        if line is None:
            await self.app(scope, receive, guarded)
        elif scope["path"].startswith("/api/"):
            await Refused(403, line).response()(scope, receive, guarded)
        else:
            await PlainTextResponse(f"{line}\n", 403)(scope, receive, guarded)

    def _objection(self, scope: Scope) -> str | None:
        """Why a request is refused; None: it is not."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not _is_loopback(hosts[0]):
            return "this studio answers to 127.0.0.1 and localhost alone"
        if any(origin != f"{scope['scheme']}://{hosts[0]}" for origin in origins):
            return "this studio answers to its own page alone"
        path = scope["path"]
        from_elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if from_elsewhere and path.startswith("/api/"):  # the link itself may be anywhere
            return "this studio answers to its own page alone"
        if path.startswith("/api/") and not self._is_token(headers.get(TOKEN_HEADER, "")):
            return "the token is missing or wrong: open the link that usd3 studio printed"
        if path == "/" and not self._is_token(_query(scope).get("token", "")):
            return "open the link that usd3 studio printed, with its token"
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token)


def _query(scope: Scope) -> dict[str, str]:
    found = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
    return {name: values[-1] for name, values in found.items()}


def _is_loopback(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, ""
    return name.lower() in _LOOPBACK and (not colon or host.endswith("]") or port.isdigit())


async def read_body(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body of a request. A slow one is refused after a while, and a large one is not kept.

    Of a large one some is read and dropped: a browser sees an answer only where it could send what it had to say.
    """
    too_large = Refused(413, f"the request is larger than {most // 2**20} MiB")
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced[:20]) > _MOST_DROPPED:
        raise too_large
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _MOST_DROPPED:
                    raise too_large
                if size <= most:
                    parts.append(part)
                else:
                    parts.clear()
        if size > most:
            raise too_large
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {_BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise Refused(400, "the request ended early") from None
    return b"".join(parts)


async def read_json(request: Request, fields: Mapping[str, bool]) -> dict[str, Any]:
    """The fields of a JSON body.

    Args:
        request: the request.
        fields: the names that there are, and whether each is needed.
    """
    body = await read_body(request)
    try:
        values = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "it is not"
        raise Refused(400, f"the request: expected JSON, and {reason}") from None
    if not isinstance(values, dict):
        raise Refused(400, "the request: expected a JSON object")
    unknown = next((name for name in values if name not in fields), None)
    if unknown is not None:
        raise Refused(400, f"{unknown[:40]}: no such field; expected {', '.join(fields)}")
    missing = next((name for name, needed in fields.items() if needed and name not in values), None)
    if missing is not None:
        raise Refused(400, f"{missing} is missing")
    return values


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
