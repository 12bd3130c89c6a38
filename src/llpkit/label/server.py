"""The local web server behind the counting page.

It serves the person at this machine only: it listens on the loopback interface, requires the token
from the printed address, and accepts requests from its own page alone. Items are requested by
number, so no request contains a path.
"""

import hmac
import json
import re
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llpkit._validation import option, whole
from llpkit.errors import LLPError
from llpkit.label.project import Contradiction, Project
from llpkit.label.store import checked_person

LARGEST_BODY = 2**16
HOSTS = ("127.0.0.1", "localhost", "[::1]")
_STATIC = {"label.js": "text/javascript", "label.css": "text/css"}
_ITEM = re.compile("[0-9]{1,12}")  # int() refuses thousands of digits
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(16)


class Guard:
    """Refuses every request that does not come from the page itself."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check host, origin, token and size, in this order."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, _limited(receive), send)

    def _refusal(self, request: Request) -> Response | None:
        # The page of another site may reach this port under its own host name (DNS rebinding).
        host = request.headers.get("host", "")
        if host.rsplit(":", 1)[0] not in HOSTS and host not in HOSTS:
            return _problem("this server answers on localhost only", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return _problem("requests from other pages are refused", 403)
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.method != "GET" and site not in ("same-origin", "none"):
            return _problem("requests from other pages are refused", 403)
        given = request.query_params.get("token") or request.cookies.get(_cookie(request), "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return _problem("the token is missing or wrong; use the address that was printed", 403)
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return _problem(f"the request is larger than {LARGEST_BODY} bytes", 413)
        return None


def _cookie(request: Request) -> str:
    """Browsers share cookies between the ports of a machine, so the name includes the port."""
    return f"llpkit-token-{request.url.port or 80}"


def _limited(receive: Receive) -> Receive:
    """Stop reading a body that has no stated length and does not end."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise TooLarge(f"the request is larger than {LARGEST_BODY} bytes")
        return message

    return limited


class TooLarge(LLPError):
    """A body beyond the limit."""


def _problem(message: str, status: int = 400) -> Response:
    # Closing the connection stops a client from sending the rest of a body that nobody reads.
    headers = _HEADERS | ({"Connection": "close"} if status == 413 else {})
    return JSONResponse({"error": message}, status, headers=headers)


def make_app(project: Project, token: str) -> ASGIApp:
    """The page and its API, for any ASGI server."""

    async def page(request: Request) -> Response:
        text = _static("label.html").replace("{{positive}}", escape(project.positive))
        response = HTMLResponse(text, headers=_HEADERS)
        if "token" in request.query_params:
            response.set_cookie(_cookie(request), token, httponly=True, samesite="strict")
        return response

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return _problem("there is no such file", 404)
        return Response(_static(name), media_type=_STATIC[name], headers=_HEADERS)

    async def picture(request: Request) -> Response:
        text = request.path_params["item"]
        if not _ITEM.fullmatch(text) or (item := int(text)) >= len(project.items.names):
            return _problem("there is no such item", 404)
        shown = await run_in_threadpool(project.items.picture, item)
        if shown is None:
            return _problem(f"item {item} has no picture", 404)
        # Items do not change while the server runs.
        headers = _HEADERS | {"Cache-Control": "private, max-age=3600"}
        return Response(shown.content, media_type=shown.media_type, headers=headers)

    def state(_: dict[str, Any]) -> Any:
        return project.state()

    def following(given: dict[str, Any]) -> Any:
        person = checked_person(given.get("person"))
        bag = project.next_bag(person)
        if bag is None:
            return {"bag": None, "left": project.uncounted()}
        return project.describe(bag, person)

    def bag(given: dict[str, Any]) -> Any:
        return project.describe(_number(given, "bag"), checked_person(given.get("person")))

    def answer(given: dict[str, Any]) -> Any:
        number, person = _number(given, "bag"), checked_person(given.get("person"))
        low, high = _number(given, "low"), _number(given, "high")
        project.answer(number, person, low, high, _seconds(given))
        return project.describe(number, person)

    def undo(given: dict[str, Any]) -> Any:
        return project.undo(checked_person(given.get("person")))

    def label(given: dict[str, Any]) -> Any:
        value = None if given.get("value") is None else _number(given, "value")
        project.label(_number(given, "item"), checked_person(given.get("person")), value)
        return {}

    async def export(_: Request) -> Response:
        def table() -> bytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "counts.csv"
                project.export(path)
                return path.read_bytes()

        content = await run_in_threadpool(table)
        headers = _HEADERS | {"Content-Disposition": 'attachment; filename="counts.csv"'}
        return Response(content, media_type="text/csv", headers=headers)

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/item/{item}", picture),
        Route("/export", export),
    ]
    calls = {"state": state, "next": following, "bag": bag, "answer": answer, "undo": undo}
    for name, call in {**calls, "label": label}.items():
        routes.append(Route(f"/api/{name}", _api(call), methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={LLPError: _user_error, 404: _not_found})
    return Guard(app, token)


def _api(call: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that takes a JSON object and returns JSON."""

    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _problem("send application/json", 415)
        try:
            body = await request.body()
        except ClientDisconnect:
            return _problem("the request was cut short")
        try:
            given = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            return _problem("the body is not JSON")
        if not isinstance(given, dict):
            return _problem("send a JSON object")
        # In a thread: the store waits for the disk.
        return JSONResponse(await run_in_threadpool(call, given), headers=_HEADERS)

    return endpoint


async def _user_error(_: Request, error: Exception) -> Response:
    if isinstance(error, Contradiction):
        return JSONResponse({"error": str(error), "bag": error.bag}, 409, headers=_HEADERS)
    return _problem(str(error), 413 if isinstance(error, TooLarge) else 400)


async def _not_found(_: Request, __: Exception) -> Response:
    return _problem("there is no such page", 404)


def _number(given: dict[str, Any], name: str) -> int:
    return whole(name, given.get(name), 0, 2**53 - 1)


def _seconds(given: dict[str, Any]) -> float:
    value = given.get("seconds", 0)
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(min(value, 3600)) if known and value >= 0 else 0.0


def _static(name: str) -> str:
    return (resources.files("llpkit.label") / "static" / name).read_text(encoding="utf-8")


def serve(app: ASGIApp, port: int, ready: Callable[[int], None]) -> None:
    """Serve on the loopback interface until interrupted; ``ready`` gets the port."""
    import asyncio
    import socket

    import uvicorn

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise LLPError(
                f"port {port} cannot be used: {error.strerror}; choose another with "
                f"{option('port')}"
            ) from error
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            limit_concurrency=64,  # more at once get a clean 503
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        listening.listen()  # from now on a browser waits until the server runs
        ready(listening.getsockname()[1])
        asyncio.run(uvicorn.Server(config).serve([listening]))
