"""The events of a draw on their way to a page."""

import asyncio
import time

import pytest

from support.studio import events, run
from usd3.studio import stream
from usd3.studio.jobs import Job, Line
from usd3.studio.stream import EventStream


def streamed(work, receive=None, send=None):
    """What a page got, and the draw."""
    parts = []

    async def keeps(message):
        parts.append(message)

    async def stays():
        await asyncio.sleep(60)

    async def main():
        line = Line()
        job = Job(work, str, None, 60.0)
        line.add(job)
        try:
            await asyncio.wait_for(EventStream(job, line)({}, receive or stays, send or keeps), 10)
            while len(line):
                await asyncio.sleep(0.005)
        finally:
            await asyncio.to_thread(line.stop)

    run(main())
    return parts


def endless(ended):
    def work(job):
        try:
            while True:
                job.check()
                job.tell("frame", {"step": 1})
                time.sleep(0.001)
        finally:
            ended.append(True)

    return work


def test_events_arrive_in_order_and_the_answer_ends_with_the_last():
    def work(job):
        job.tell("frame", {"object": "ä\n\nevent: done"})
        job.tell("progress", {"step": 1})
        return {"objects": [1]}

    start, *bodies = streamed(work)
    assert start["status"] == 200
    text = b"".join(body["body"] for body in bodies).decode()
    assert events(text) == [
        ("frame", {"object": "ä\n\nevent: done"}),
        ("progress", {"step": 1}),
        ("done", {"objects": [1]}),
    ]
    assert [body["more_body"] for body in bodies] == [True, True, False]


def test_a_page_that_goes_away_ends_its_draw():
    ended = []

    async def goes():
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    parts = streamed(endless(ended), receive=goes)
    assert ended == [True]
    assert parts[-1]["more_body"]


def test_a_page_that_does_not_read_is_given_up(monkeypatch):
    monkeypatch.setattr(stream, "_PATIENCE", 0.05)
    ended = []

    async def never(message):
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    streamed(endless(ended), send=never)
    assert ended == [True]


def test_a_long_step_is_filled_with_comments_that_keep_the_connection(monkeypatch):
    monkeypatch.setattr(stream, "_HEARTBEAT", 0.02)

    def work(job):
        time.sleep(0.1)
        return {}

    text = b"".join(part["body"] for part in streamed(work)[1:]).decode()
    assert text.startswith(": \n\n")
    assert [name for name, _ in events(text)] == ["done"]


def test_numbers_that_are_none_never_reach_a_page():
    with pytest.raises(ValueError, match="JSON"):
        streamed(lambda job: {"seconds": float("nan")})
