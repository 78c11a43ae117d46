"""usd3 studio: a page in the browser to draw from models."""

from dataclasses import dataclass
from pathlib import Path

from usd3._internal.checks import as_count, as_number
from usd3.kinds.registry import RenderOptions
from usd3.pipeline.packaged import list_models

__all__ = ["StudioOptions", "studio"]


@dataclass
class StudioOptions:
    """Open a page in the browser to draw from models.

    Music, puzzles, texts, tables and images are filled where they are open, and one can watch it happen. The page
    answers to this computer alone, and to the link that is printed. Where it runs on another computer, reach it
    through `ssh -L 8421:127.0.0.1:8421 HOST`.

    Args:
        model: what to open first: a packaged model, or the folder of a run or of a saved model; null: choose on the
            page. The page also opens model folders below the current folder.
        port: the port; where it is taken, the next free one.
        browser: open the link in the browser; --no-browser only prints it.
        minutes: how long one draw may take.
        vqgan: folder of the VQGAN that turns tokens into images; null: where it was when it made the tokens.
        device: "cpu" or "cuda"; null: a GPU if there is one.
    """

    model: str | None = None
    port: int = 8421
    browser: bool = True
    minutes: float = 5.0
    vqgan: str | None = None
    device: str | None = None


def studio(options: StudioOptions) -> None:
    """Serve the page until Ctrl-C."""
    as_count(options.port, "port", 0, 65535)
    as_number(options.minutes, "minutes", 0, 24 * 60)
    try:
        from usd3.studio.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise ImportError(f"usd3 studio needs {error.name}: pip install 'usd3[studio]'") from None
    from usd3.studio.models import Shelf

    roots = [Path.cwd()]
    if options.model is not None and options.model not in list_models():
        roots.append(Path(options.model))
    shelf = Shelf(tuple(roots), options.model, RenderOptions(vqgan=options.vqgan), options.device)
    if options.model is not None:
        shelf.open(options.model)  # an error is said now
    serve(shelf, options.port, 60 * options.minutes, options.browser)
