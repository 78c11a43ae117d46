"""The line of draws: in order, bounded, and ended when nobody waits any more."""

import asyncio
import threading

import pytest

from support.studio import run
from usd3.studio.guard import Refused
from usd3.studio.jobs import Job, Line


class Bench:
    """A line in an event loop, with draws that wait until they are let through."""

    def __init__(self, most=3):
        self.line, self.order, self.gate = Line(most), [], threading.Event()

    def job(self, name, page=None, seconds=60.0, work=None):
        def draws(job):
            self.order.append(name)
            while not self.gate.wait(0.005):
                job.check()
            job.check()
            return {"name": name}

        return Job(work or draws, str, page, seconds)

    async def outcome(self, job):
        while True:
            event = await asyncio.wait_for(job.events.get(), 5)
            if event.name in ("done", "error"):
                return event


def played(scenario, **options):
    async def main():
        bench = Bench(**options)
        try:
            await asyncio.wait_for(scenario(bench), 20)
        finally:
            bench.gate.set()
            bench.line.stop()

    run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.002)


def test_draws_are_done_in_the_order_in_which_they_came():
    async def scenario(bench):
        jobs = [bench.job(i) for i in range(4)]
        assert [bench.line.add(job) for job in jobs[:1]] == [0]
        await until(lambda: bench.order == [0])
        assert [bench.line.add(job) for job in jobs[1:]] == [1, 2, 3]
        assert [bench.line.place(job) for job in jobs] == [None, 1, 2, 3]
        assert len(bench.line) == 4
        bench.gate.set()
        assert [(await bench.outcome(job)).data["name"] for job in jobs] == [0, 1, 2, 3]
        assert bench.order == [0, 1, 2, 3]
        await until(lambda: len(bench.line) == 0)

    played(scenario)


def test_a_full_line_refuses_and_says_when_to_try_again():
    async def scenario(bench):
        bench.line.add(bench.job("now"))
        await until(lambda: bench.order == ["now"])
        for i in range(3):
            bench.line.add(bench.job(i))
        with pytest.raises(Refused, match="3 draws are waiting") as raised:
            bench.line.add(bench.job("more"))
        assert (raised.value.status, raised.value.retry_after) == (503, 5)
        with pytest.raises(Refused):
            bench.line.require_room("a tab")

    played(scenario)


def test_another_draw_of_a_tab_takes_the_place_of_its_last_one():
    async def scenario(bench):
        first, other, second = bench.job(1, "tab"), bench.job(2, "other"), bench.job(3, "tab")
        bench.line.add(first)
        await until(lambda: bench.order == [1])
        bench.line.add(other)
        bench.line.add(second)
        assert (await bench.outcome(first)).data == {"error": "stopped"}
        third = bench.job(4, "tab")
        bench.line.add(third)
        assert (await bench.outcome(second)).data == {"error": "stopped"}
        bench.gate.set()
        assert [(await bench.outcome(job)).data["name"] for job in (other, third)] == [2, 4]
        assert bench.order == [1, 2, 4]

    played(scenario)


def test_a_tab_with_a_waiting_draw_has_its_place_in_a_full_line():
    async def scenario(bench):
        bench.line.add(bench.job("now"))
        await until(lambda: bench.order == ["now"])
        for page in "abc":
            bench.line.add(bench.job(page, page))
        bench.line.require_room("b")
        bench.line.add(bench.job("again", "b"))
        assert len(bench.line) == 4

    played(scenario)


def test_draws_without_a_tab_do_not_end_each_other():
    async def scenario(bench):
        jobs = [bench.job(i) for i in range(3)]
        for job in jobs:
            bench.line.add(job)
        bench.gate.set()
        assert [(await bench.outcome(job)).name for job in jobs] == ["done"] * 3

    played(scenario)


def test_a_draw_that_ended_frees_the_thread():
    async def scenario(bench):
        first, second = bench.job(1), bench.job(2)
        bench.line.add(first)
        await until(lambda: bench.order == [1])
        bench.line.add(second)
        bench.line.end(first)
        await until(lambda: bench.order == [1, 2])
        bench.line.end(second)
        bench.line.end(second)  # again: nothing happens
        await until(lambda: len(bench.line) == 0)

    played(scenario)


def test_a_draw_ends_after_its_time_and_the_next_one_has_its_own():
    async def scenario(bench):
        first, second = bench.job(1, seconds=0.03), bench.job(2, seconds=60)
        bench.line.add(first)
        bench.line.add(second)
        event = await bench.outcome(first)
        assert "0.0005 minutes" in event.data["error"]
        await until(lambda: bench.order == [1, 2])
        bench.gate.set()
        assert (await bench.outcome(second)).name == "done"

    played(scenario)


def test_a_draw_that_fails_says_why_and_the_next_one_is_done():
    async def scenario(bench):
        def fails(job):
            raise ValueError("no such thing")

        jobs = [bench.job(1, work=fails), bench.job(2)]
        bench.gate.set()
        for job in jobs:
            bench.line.add(job)
        assert (await bench.outcome(jobs[0])).data == {"error": "no such thing"}
        assert (await bench.outcome(jobs[1])).name == "done"

    played(scenario)


def test_a_reader_that_is_too_slow_misses_frames_and_not_the_end():
    async def scenario(bench):
        def talks(job):
            for i in range(10_000):
                job.tell("frame", {"step": i})
            return {}

        job = bench.job(1, work=talks)
        bench.line.add(job)
        await until(lambda: len(bench.line) == 0)
        await asyncio.sleep(0.05)
        names = [job.events.get_nowait().name for _ in range(job.events.qsize())]
        assert names[-1] == "done"
        assert len(names) <= 401

    played(scenario)


def test_a_line_that_stops_ends_its_thread():
    async def scenario(bench):
        jobs = [bench.job(i) for i in range(3)]
        for job in jobs:
            bench.line.add(job)
        await asyncio.to_thread(bench.line.stop)
        assert [(await bench.outcome(job)).data for job in jobs] == [{"error": "stopped"}] * 3
        assert not bench.line._thread.is_alive()

    played(scenario)
