"""The studio's web application: what each address answers."""

import asyncio
import base64
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from usd3._internal.checks import as_count, require, require_type
from usd3._version import __version__
from usd3.studio.drawing import FIELDS, draw, read_wish
from usd3.studio.guard import MOST_BYTES, Guard, Refused, read_body, read_json
from usd3.studio.jobs import Job, Line
from usd3.studio.messages import explained
from usd3.studio.models import Open, Shelf
from usd3.studio.stream import EventStream

__all__ = ["Studio"]

PAGE = Path(__file__).parent / "page"

_PAGE_HEADER = "x-usd3-page"
_MOST_PENDING = 64  # requests that read, write or open something, or are about to wait for a draw
_MOST_OBJECTS = 1000  # of a file or of pictures
_TEMPO = (20, 400)
_TYPES = {".mid": "audio/midi", ".png": "image/png", ".txt": "text/plain; charset=utf-8", ".csv": "text/csv"}
_ANY_TYPE = "application/octet-stream"

Result = TypeVar("Result")


class Studio:
    """The application and what it holds: the open models, the line of draws, and a thread for everything short.

    Args:
        shelf: the models.
        token: the token in the link.
        seconds: how long a draw may take.
    """

    def __init__(self, shelf: Shelf, token: str, seconds: float = 300.0):
        self.shelf, self.seconds, self.line = shelf, seconds, Line()
        self._desk = ThreadPoolExecutor(1, "usd3 studio reads and writes")
        self._pending = 0
        self.app: ASGIApp = Guard(self._routes(), token)

    def close(self) -> None:
        """End what is being done."""
        self.line.stop()
        self._desk.shutdown(wait=False, cancel_futures=True)

    def _routes(self) -> Starlette:
        def api(path: str, answer: Callable[[Request], Any], method: str = "POST") -> Route:
            return Route(f"/api/{path}", answer, methods=[method])

        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/favicon.ico", self._icon),
                Mount("/page", StaticFiles(directory=PAGE)),
                api("health", self._health, "GET"),
                api("models", self._models, "GET"),
                api("open", self._open),
                api("draw", self._draw),
                api("read", self._read),
                api("write", self._write),
                api("picture", self._picture),
            ],
            exception_handlers={Refused: _refused, Exception: _failed, 404: _no_address, 405: _no_address},
        )

    async def _at_desk(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of something short, done in the thread that does such things one after the other."""
        if self._pending >= _MOST_PENDING:
            raise Refused(503, f"{_MOST_PENDING} requests are waiting already: try again in a moment", retry_after=2)
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._desk, work, *arguments)
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            raise Refused(400, explained(error)) from error
        finally:
            self._pending -= 1

    # ---- the page -----------------------------------------------------------------------------------------------

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _icon(self, request: Request) -> Response:
        file = PAGE / "icon.svg"
        return FileResponse(file) if file.is_file() else Response(status_code=204)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"ok": True, "queue": len(self.line), "version": __version__})

    # ---- models -------------------------------------------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        models = await self._at_desk(self.shelf.list)
        return JSONResponse({"models": models, "chosen": self.shelf.chosen})

    async def _open(self, request: Request) -> Response:
        name = _text(await read_json(request, {"model": True}), "model")
        return JSONResponse(await self._at_desk(lambda: self.shelf.open(name).about()))

    # ---- draws --------------------------------------------------------------------------------------------------

    async def _draw(self, request: Request) -> Response | EventStream:
        page = _page_of(request)
        self.line.require_room(page)
        values = await read_json(request, FIELDS)
        name = _text(values, "model")
        wish = await self._at_desk(lambda: read_wish(values, self.shelf.open(name)))
        if await request.is_disconnected():
            return Response(status_code=400)
        job = Job(lambda job: draw(self.shelf.open(name), wish, job), explained, page, self.seconds)
        self.line.add(job)
        return EventStream(job, self.line)

    # ---- files and pictures -------------------------------------------------------------------------------------

    async def _read(self, request: Request) -> Response:
        name, file = (request.query_params.get(field, "") for field in ("model", "name"))
        body = await read_body(request, MOST_BYTES)
        found, notes = await self._at_desk(self._read_file, name, file, body)
        return JSONResponse({"object": found, "notes": notes})

    def _read_file(self, name: str, file: str, body: bytes) -> tuple[Any, list[str]]:
        page = self.shelf.open(name).page
        suffix = Path(file).suffix.lower()
        require(suffix in page.reads, "file", file[-60:], f"one that ends with {' or '.join(page.reads)}")
        require(len(body) > 0, "file", file[-60:], "one that is not empty")
        with tempfile.TemporaryDirectory(prefix="usd3-studio-") as folder:
            path = Path(folder) / f"{_plain(Path(file).stem)}{suffix}"
            path.write_bytes(body)
            return page.read(path)

    async def _write(self, request: Request) -> Response:
        fields = {"model": True, "objects": True, "format": True, "tempo": False}
        values = await read_json(request, fields)
        name, suffix = _text(values, "model"), _text(values, "format")
        tempo = values.get("tempo")
        content, file = await self._at_desk(self._write_file, name, values["objects"], suffix, tempo)
        headers = {"Content-Disposition": f'attachment; filename="{file}"'}
        return Response(content, headers=headers, media_type=_TYPES.get(suffix, _ANY_TYPE))

    def _write_file(self, name: str, objects: Any, suffix: str, tempo: Any) -> tuple[bytes, str]:
        model = self.shelf.open(name)
        _require_few(objects)
        require(suffix in model.page.writes, "format", suffix[:20], f"one of {', '.join(model.page.writes)}")
        options = self.shelf.request(None if tempo is None else as_count(tempo, "tempo", *_TEMPO))
        file = f"{_plain(Path(name).name)}{suffix}"
        with tempfile.TemporaryDirectory(prefix="usd3-studio-") as folder:
            model.page.write(objects, Path(folder) / file, options)
            return (Path(folder) / file).read_bytes(), file

    async def _picture(self, request: Request) -> Response:
        values = await read_json(request, {"model": True, "objects": True})
        pictures = await self._at_desk(self._pictures_of, _text(values, "model"), values["objects"])
        return JSONResponse({"pictures": pictures})

    def _pictures_of(self, name: str, objects: Any) -> list[str]:
        model: Open = self.shelf.open(name)
        _require_few(objects)
        tokens = model.page.from_page(objects)
        encoded = (base64.b64encode(picture).decode() for picture in model.page.pictures(tokens))
        return [f"data:image/png;base64,{picture}" for picture in encoded]


def _text(values: dict[str, Any], field: str) -> str:
    """A field that must be a text of some length."""
    value = values[field]
    if not isinstance(value, str) or not 0 < len(value) <= 500:
        raise Refused(400, f"{field}: expected a short text")
    return value


def _require_few(objects: Any) -> None:
    require_type(isinstance(objects, list), "objects", objects, "a list of objects")
    require(0 < len(objects) <= _MOST_OBJECTS, "objects", f"{len(objects):,}", f"1..{_MOST_OBJECTS:,} of them")


def _plain(name: str) -> str:
    """A name for a file: letters and digits alone."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-") or "file"


def _page_of(request: Request) -> str | None:
    """The id of the tab that asks; None: it has none."""
    page = request.headers.get(_PAGE_HEADER)
    if page is not None and re.fullmatch(r"[\w-]{1,64}", page, re.ASCII) is None:
        raise Refused(400, "X-USD3-Page: expected at most 64 letters and digits")
    return page


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response()


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": explained(error)}, 500)


async def _no_address(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"there is no {request.method} {request.url.path[:80]}"}, 404)
