"""The events of a draw as server-sent events, until the page has gone."""

import asyncio
import json
from typing import Any

from starlette.types import Receive, Scope, Send

from usd3.studio.jobs import Event, Job, Line

__all__ = ["EventStream"]

_HEARTBEAT = 1.0  # seconds
_PATIENCE = 30.0  # seconds that a page may take to read


class EventStream:
    """An answer that sends the events of a draw. Where the page goes away, or does not read, the draw ends.

    Args:
        job: the draw.
        line: where it waits.
    """

    def __init__(self, job: Job, line: Line):
        self.job, self.line = job, line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_events(gone, send)
        except TimeoutError:  # nobody reads: the server closes a connection whose answer is not complete
            return
        finally:
            gone.cancel()
            self.line.end(self.job)

    async def _send_events(self, gone: "asyncio.Future[None]", send: Send) -> None:
        before = self.line.place(self.job)
        if before:
            await _sent(send, Event("queued", {"before": before}))
        while True:
            following = asyncio.ensure_future(self.job.events.get())
            both: set[asyncio.Future[Any]] = {following, gone}
            await asyncio.wait(both, timeout=_HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                following.cancel()
                return
            if not following.done():
                following.cancel()
                before = self.line.place(self.job)
                await _sent(send, None if before is None else Event("queued", {"before": before}))
                continue
            event = following.result()
            is_last = event.name in ("done", "error")
            await _sent(send, event, more=not is_last)
            if is_last:
                return


async def _gone(receive: Receive) -> None:
    """Wait until the page has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _sent(send: Send, event: Event | None, more: bool = True) -> None:
    """Send an event; None: a comment, to keep the connection alive."""
    text = ": \n\n"
    if event is not None:
        data = json.dumps(event.data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text = f"event: {event.name}\ndata: {data}\n\n"
    async with asyncio.timeout(_PATIENCE):
        await send({"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": more})
