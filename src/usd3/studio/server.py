"""The studio as a server on this computer: a free port, the link, the browser, and a clean end."""

import contextlib
import errno
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from usd3.studio.app import Studio
from usd3.studio.models import Shelf

__all__ = ["HOST", "PORT", "free_socket", "serve"]

HOST, PORT = "127.0.0.1", 8421
_MOST_TRIED = 50  # ports
_MOST_CONNECTIONS = 512


def say_now(line: str) -> None:
    """Print a line at once, also where the output is no terminal."""
    print(line, flush=True)


def serve(
    shelf: Shelf,
    port: int = PORT,
    seconds: float = 300.0,
    browse: bool = True,
    say: Callable[[str], None] = say_now,
    token: str | None = None,
) -> None:
    """Serve the studio until Ctrl-C.

    Args:
        shelf: the models.
        port: the port; where it is taken, the next free one.
        seconds: how long a draw may take.
        browse: open the link in the browser.
        say: prints a line.
        token: the token in the link; None: a new one.
    """
    token = secrets.token_urlsafe(24) if token is None else token
    listening = free_socket(port)
    link = f"http://{HOST}:{listening.getsockname()[1]}/?token={token}"
    studio = Studio(shelf, token, seconds)
    server = uvicorn.Server(
        uvicorn.Config(
            studio.app,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
    )
    say(f"usd3 studio is at {link}")
    say("It answers to this computer alone; Ctrl-C ends it.")
    opening = threading.Timer(0.5, webbrowser.open, (link,))
    opening.daemon = True
    if browse:
        opening.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C; on a busy machine the server may end without it
            server.run(sockets=[listening])
    finally:
        opening.cancel()
        studio.close()
        listening.close()
    say("usd3 studio has ended.")


def free_socket(port: int) -> socket.socket:
    """A socket that listens on this port of this computer, or on the next one that is free; 0: on any."""
    for number in range(port, min(port + _MOST_TRIED, 65536)):
        try:
            return _listening(number)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(f"port = {port}: this port and the next {_MOST_TRIED} are taken: choose another with --port")


def _listening(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would share a port that another program has
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen(256)
    except OSError:
        found.close()
        raise
    return found
