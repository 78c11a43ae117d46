"""Attack the studio, and measure how long a draw of eight bars takes.

    python benchmarks/studio.py                 # everything; about four minutes on two cores
    python benchmarks/studio.py --quick         # a little of each

`usd3 studio` runs in a process of its own. A row says what was sent, what came back, whether that is what was promised,
and the memory of the process before and after. What is promised: docs/studio.md.
"""

import argparse
import asyncio
import json
import random
import statistics
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attacks.web import Answer, Server

from usd3._internal.files import write_whole
from usd3._internal.tables import Table
from usd3.bench.machine import machine

__all__ = ["main"]

_STEADY = 64.0  # MiB by which the memory may grow in an attack
_BODY_SECONDS = 20  # after which the studio gives a body up
_SILENT = "no body"


class Row(NamedTuple):
    """An attack: what was sent, what came back, whether it is what was promised, and the memory in MiB."""

    attack: str
    sent: str
    came_back: str
    passed: bool
    before: float
    after: float


class Attacks:
    """The attacks on one studio.

    Args:
        server: the studio.
        model: the model that draws.
        example: an object of it with holes.
        quick: a little of each.
    """

    def __init__(self, server: Server, model: str, example: Any, quick: bool):
        self.server, self.model, self.example, self.quick = server, model, example, quick
        self.random = random.Random(0)

    def wish(self, **fields: Any) -> dict[str, Any]:
        """A small draw."""
        return {"model": self.model, "object": self.example, "num": 1, "steps": 2, "frames": 2, "seed": 1} | fields

    async def many_at_once(self) -> tuple[str, str, bool]:
        """Draws from as many tabs at once."""
        pages = [{"X-USD3-Page": f"tab-{i}"} for i in range(200)]
        answers = await asyncio.gather(*(self.server.post("draw", self.wish(), page) for page in pages))
        done = sum(answer.is_done for answer in answers)
        refused = sum(answer.status == 503 and answer.is_one_line for answer in answers)
        said = f"{done} drawn, {refused} refused with 503, {200 - done - refused} lost"
        return "200 draws at once, each from a tab of its own", said, done >= 32 and done + refused == 200

    async def one_tab(self) -> tuple[str, str, bool]:
        """A user who clicks again and again."""
        page = {"X-USD3-Page": "tab"}
        answers = await asyncio.gather(*(self.server.post("draw", self.wish(steps=50), page) for _ in range(50)))
        done = sum(answer.is_done for answer in answers)
        stopped = sum(answer.status == 200 and "stopped" in answer.text for answer in answers)
        others = 50 - done - stopped
        return (
            "50 draws at once from one tab",
            f"{done} drawn, {stopped} stopped, {others} lost",
            done >= 1 and not others,
        )

    async def closed_tabs(self) -> tuple[str, str, bool]:
        """Tabs that ask for a long draw and close."""
        count = 10 if self.quick else 50
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            body = json.dumps(self.wish(steps=1000, num=4)).encode()
            writer.write(self.server.request("/api/draw", body))
            await asyncio.sleep(0.02)
            writer.close()
        seconds = await self.server.empty(30)
        return f"{count} long draws whose tabs close", f"none left after {seconds:.1f} s", seconds < 5

    async def slow_clients(self) -> tuple[str, str, bool]:
        """Connections that never finish what they say, and draws that nobody reads."""
        count, writers = 20 if self.quick else 100, []
        long = json.dumps(self.wish(steps=200, frames=100)).encode()
        for i in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=2**10)
            whole = self.server.request("/api/draw", long)
            writer.write([b"", b"GET / HT", whole[:-5], whole][i % 4])
            writers.append(writer)
        begun = time.perf_counter()
        answer = await self.server.send(self.server.request("/api/health"))
        seconds = time.perf_counter() - begun
        for writer in writers:
            writer.close()
        left = await self.server.empty(60)
        said = f"another tab is answered in {1000 * seconds:.0f} ms; none left {left:.1f} s after they closed"
        passed = answer.status == 200 and seconds < 1 and left < 5
        return f"{count} connections that say nothing, half a request, or do not read", said, passed

    async def bodies_that_do_not_come(self) -> tuple[str, str, bool]:
        """Bodies that are announced and do not come."""
        if self.quick:
            return _SILENT, "not tried", True
        content = self.server.request("/api/draw", b"{}", {"Content-Length": "100"})
        answers = await asyncio.gather(*(self.server.send(content) for _ in range(50)))
        seconds = max(answer.seconds for answer in answers)
        passed = all(answer.status == 408 for answer in answers) and seconds < _BODY_SECONDS + 5
        return "50 bodies that are announced and do not come", f"{_counts(answers)}, after {seconds:.0f} s", passed

    async def strangers(self) -> tuple[str, str, bool]:
        """Requests without the token, or from elsewhere."""
        requests, token = [], self.server.token
        for path in ("/api/models", "/api/health", "/api/nothing"):
            for wrong in ("", "a", token[:-1], token + "a", token.swapcase(), "x" * 10_000, "é"):
                requests.append(self.server.request(path, None, {"X-USD3-Token": wrong}))
            for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example:80"):
                requests.append(self.server.request(path, None, {"Host": host}))
            for origin in ("null", "http://evil.example", "https://127.0.0.1", f"http://localhost:{self.server.port}"):
                requests.append(self.server.request(path, None, {"Origin": origin}))
            requests.append(self.server.request(path, None, {"Sec-Fetch-Site": "cross-site"}))
        requests += [self.server.request(path) for path in ("/", "/?token=", f"/?token={token}x")]
        answers = await asyncio.gather(*(self.server.send(request) for request in requests))
        passed = all(answer.status == 403 and answer.text.count("\n") <= 1 for answer in answers)
        return f"{len(requests)} requests with a wrong token, Host or Origin", _counts(answers), passed

    async def files_of_the_computer(self) -> tuple[str, str, bool]:
        """Requests for files and folders that are not the studio's."""
        ways = ["..", "%2e%2e", "..%2f", "%252e%252e", "....//", "..%5c", "..%00/"]
        paths = [f"/page/{'/'.join([way] * depth)}/{file}" for way in ways for depth in (1, 6) for file in _FILES]
        answers = await asyncio.gather(*(self.server.send(self.server.request(path)) for path in paths))
        names = [f"{'../' * depth}{file}" for depth in (0, 6) for file in _FILES] + ["/", "~", ".", "\0", "/proc/self"]
        answers += await asyncio.gather(*(self.server.post("open", {"model": name}) for name in names))
        refused = all(answer.status in (400, 403, 404) for answer in answers)
        leaks = sum("root:" in answer.text or "import" in answer.text for answer in answers)
        sent = f"{len(answers)} paths that lead to other files"
        return sent, f"{_counts(answers)}, {leaks} with content", refused and not leaks

    async def bombs(self) -> tuple[str, str, bool]:
        """Bodies that are too large, too deep, or no JSON."""
        size = 2**27 if self.quick else 2**30
        bodies = [b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**6, b"NaN", b'{"model": "\\ud800"}', b"\xff" * 1000, b""]
        bodies += [json.dumps(self.wish(**{name: value})).encode() for name in _FIELDS for value in _VALUES]
        answers = [await self.server.post("draw", body) for body in bodies]
        answers += [await self.server.send(self.server.request("/api/draw", b"{}", {"Content-Length": str(size)}))]
        passed = all(answer.is_one_line and answer.status in (400, 413) for answer in answers)
        answers += [await self._endless(size)]  # after 64 MiB the connection may be closed without an answer
        passed = passed and answers[-1].status in (413, 0)
        sent = f"{len(answers)} bodies too large (up to {size // 2**20:,} MiB), too deep, of other types or no JSON"
        return sent, _counts(answers), passed

    async def _endless(self, size: int) -> Answer:
        """The answer to a body in parts that has no end, of which at most `size` bytes are sent."""
        head = self.server.request("/api/read?model=bach&name=a.mid", b"", {"Transfer-Encoding": "chunked"})
        head = head.replace(b"Content-Length: 0\r\n", b"")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(head)
        part = b"10000\r\n" + bytes(2**16) + b"\r\n"
        try:
            for _ in range(size // 2**16):
                writer.write(part)
                await writer.drain()
                if reader.at_eof() or len(reader._buffer) > 0:  # type: ignore[attr-defined]
                    break
            found = await reader.read(2**16)
        except OSError:
            found = b""
        writer.close()
        head, _, body = found.partition(b"\r\n\r\n")
        return Answer(int(head.split()[1]) if head else 0, body.decode("utf-8", "replace"), 0.0)

    async def damaged_files(self) -> tuple[str, str, bool]:
        """MIDI files with random changes."""
        count, valid, answers = 30 if self.quick else 1000, _midi(), list[Answer]()
        for _ in range(count):
            content = bytearray(valid)
            for _ in range(self.random.randint(1, 2)):
                content[self.random.randrange(len(content))] = self.random.randrange(256)
            cut = self.random.randrange(len(content)) if self.random.random() < 0.2 else None
            answers.append(await self.server.post("read?model=bach&name=a.mid", bytes(content[:cut])))
        passed = all(answer.status == 200 or (answer.status == 400 and answer.is_one_line) for answer in answers)
        slowest = max(answer.seconds for answer in answers)
        sent = f"{count} MIDI files with random changes"
        return sent, f"{_counts(answers)}, the slowest in {1000 * slowest:.0f} ms", passed and slowest < 5

    async def again_and_again(self) -> tuple[str, str, bool]:
        """The first attack again, to see whether the memory stays."""
        rounds = 2 if self.quick else 5
        memory = []
        for _ in range(rounds):
            _, _, passed = await self.many_at_once()
            memory.append(self.server.memory)
        growth = memory[-1] - memory[0]
        sent = f"{rounds} times 200 draws at once"
        return sent, f"{growth:+.0f} MiB from the first to the last time", passed and growth < _STEADY / 2

    async def rows(self) -> AsyncIterator[Row]:
        """All attacks, one after the other; after each the studio must still draw."""
        for attack in (
            self.many_at_once,
            self.one_tab,
            self.closed_tabs,
            self.slow_clients,
            self.bodies_that_do_not_come,
            self.strangers,
            self.files_of_the_computer,
            self.bombs,
            self.damaged_files,
            self.again_and_again,
        ):
            before = self.server.memory
            sent, came_back, passed = await attack()
            await self.server.empty(60)
            still = (await self.server.post("draw", self.wish())).is_done
            after = self.server.memory
            passed = passed and still and after - before < _STEADY
            name = attack.__name__.replace("_", " ")
            yield Row(name, sent, came_back + ("" if still else "; it drew no more"), passed, before, after)


_FILES = ("etc/passwd", "app.py", "guard.py", "pyproject.toml")
_FIELDS = ("object", "num", "steps", "sampler", "temperature", "top_p", "guidance", "seed", "where", "frames", "more")
_VALUES: tuple[Any, ...] = (-1, 10**30, 1e300, True, "x", [], {"a": {}}, [[[]]], "y" * 5000)


def _counts(answers: Sequence[Answer]) -> str:
    """How many answers had each status."""
    counts = Counter(answer.status for answer in answers)
    return ", ".join(f"{count} x {status or 'closed'}" for status, count in sorted(counts.items()))


def _midi() -> bytes:
    """A MIDI file with some notes."""
    events = b"".join(bytes([0, 0x90, 60 + i % 12, 90, 0x30, 0x80, 60 + i % 12, 0]) for i in range(64))
    track = events + b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, 0, 1, 96) + b"MTrk" + struct.pack(">I", len(track)) + track


async def latency(server: Server, model: str, example: Any, num: int, repeats: int, **fields: Any) -> dict[str, float]:
    """The median seconds from a request until the first object, and until all are there."""
    first, last = [], []
    for seed in range(repeats):
        body = json.dumps({"model": model, "object": example, "num": num, "seed": seed, **fields}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        begun, seen, early = time.perf_counter(), b"", None
        writer.write(server.request("/api/draw", body))
        while part := await reader.read(2**16):
            seen += part
            if early is None and (b"event: first" in seen or b"event: done" in seen):
                early = time.perf_counter() - begun
        assert b"event: done" in seen, seen[-300:]
        assert early is not None
        first.append(early)
        last.append(time.perf_counter() - begun)
        writer.close()
    return {"first": statistics.median(first), "all": statistics.median(last)}


def second_half(opened: dict[str, Any]) -> list[int]:
    """A melody whose last eight bars are open."""
    theme, bars = opened["prompts"][0], 8 * opened["editor"]["steps_per_bar"]
    return [*[step if step >= 0 else 60 for step in theme[: len(theme) - bars]], *[-1] * bars]


def tune(opened: dict[str, Any]) -> list[list[int]]:
    """A chorale of eight bars with a soprano alone, as the page sends it: the rest of the roll is silent."""
    bars, rest = 8 * opened["editor"]["steps_per_bar"], opened["editor"]["rest"]
    theme = [step[0] for step in opened["prompts"][0] if step[0] >= 0]
    soprano = (theme * bars)[:bars]
    return [[pitch, -1, -1, -1] for pitch in soprano] + [[rest] * 4] * (opened["shape"][0] - bars)


async def times(server: Server, quick: bool) -> list[Row]:
    """How long eight bars take, with the usual settings of the page."""
    rows, repeats = list[Row](), 1 if quick else 5
    for model, what, eight_bars in (("chorale", "harmonised", tune), ("bach", "continued", second_half)):
        opened = json.loads((await server.post("open", {"model": model})).text)
        example, steps = eight_bars(opened), 2 if quick else opened["steps"]
        await latency(server, model, example, 1, 1, steps=steps)
        for num in (1, opened["num"]):
            found = await latency(server, model, example, num, repeats, steps=steps)
            said = f"the first after {found['first']:.2f} s, all after {found['all']:.2f} s (median of {repeats})"
            sent = f"eight bars {what}, {num} variant{'s' if num > 1 else ''}, {steps} steps, frames to watch"
            rows.append(Row("time", sent, said, quick or found["first"] < 2, server.memory, server.memory))
    alone: dict[int, list[float]] = {0: [], 40: []}
    for _ in range(2 * repeats):  # in turn, and the shortest count: what else the machine does only takes time
        for frames, seconds in alone.items():
            found = await latency(server, model, example, 1, 1, frames=frames, steps=steps)
            seconds.append(found["all"])
    ratio = min(alone[40]) / min(alone[0])
    said = f"{ratio:.2f} times the draw without (the shortest of {2 * repeats} each)"
    rows.append(Row("time", "eight bars with 40 frames", said, quick or ratio < 1.2, server.memory, server.memory))
    return rows


async def measured(server: Server, quick: bool) -> list[Row]:
    """All rows; each is printed when it is there."""
    model = "bach"
    opened = json.loads((await server.post("open", {"model": model})).text)
    await server.post("draw", {"model": model, "object": opened["example"], "num": 1, "steps": 2})
    rows = list[Row]()
    async for row in Attacks(server, model, opened["example"], quick).rows():
        rows.append(row)
        print(f"{'PASS' if row.passed else 'FAIL'} {row.attack}: {row.sent}: {row.came_back}", flush=True)
    for row in await times(server, quick):
        rows.append(row)
        print(f"{'PASS' if row.passed else 'FAIL'} {row.attack}: {row.sent}: {row.came_back}", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, measure, print the table and write it; returns how many rows failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a little of each, with a small model")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "studio.csv")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="usd3-studio-attack-") as place:
        server = Server(Path(place))
        try:
            rows = asyncio.run(measured(server, given.quick))
        finally:
            server.close()
    lines = [[*row[:3], _verdict(row), f"{row.before:.0f}", f"{row.after:.0f}"] for row in rows]
    head = ["attack", "sent", "came back", "verdict", "MiB before", "MiB after"]
    print(f"\n{Table(head[1:], [[line[1:] for line in lines]]).markdown()}")
    about = machine()
    whole = [[*line, *about.values()] for line in lines]
    write_whole(given.csv, Table([*head, *about], [whole]).csv())
    print(f"wrote {given.csv}")
    return sum(not row.passed for row in rows)


def _verdict(row: Row) -> str:
    return "PASS" if row.passed else "FAIL"


if __name__ == "__main__":
    sys.exit(main())
