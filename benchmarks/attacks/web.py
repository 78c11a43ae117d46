"""A studio in a process of its own, and a small client that may also behave badly."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import usd3

__all__ = ["Answer", "Server"]

_LONGEST = 300.0  # seconds for an answer


class Answer(NamedTuple):
    """What came back.

    Args:
        status: of the answer; 0: the connection was closed without one.
        text: the body.
        seconds: until the last byte.
    """

    status: int
    text: str
    seconds: float

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The events of a draw."""
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    @property
    def is_done(self) -> bool:
        """Whether a draw was finished."""
        return self.status == 200 and bool(self.events) and self.events[-1][0] == "done"

    @property
    def is_one_line(self) -> bool:
        """Whether this is an error with one line."""
        try:
            line = json.loads(self.text)["error"]
        except (ValueError, KeyError, TypeError):
            return False
        return 400 <= self.status < 600 and isinstance(line, str) and 0 < len(line) < 1000 and "\n" not in line


class Server:
    """`usd3 studio` in a process of its own."""

    def __init__(self, folder: Path, *options: str):
        command = [sys.executable, "-m", "usd3", "studio", "--no-browser", "--port", "18500", *options]
        environment = os.environ | {"PYTHONPATH": str(Path(usd3.__file__).parents[1])}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port, self.token = int(line.split(":")[2].split("/")[0]), line.strip().partition("token=")[2]

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def memory(self) -> float:
        """The memory of the process in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def request(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """The bytes of a request; `headers` replace the usual ones."""
        sent = {"Host": f"127.0.0.1:{self.port}", "X-USD3-Token": self.token, "Connection": "close"}
        sent |= {} if body is None else {"Content-Length": str(len(body))}
        sent |= headers or {}
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + (body or b"")

    async def send(self, content: bytes) -> Answer:
        """Send bytes, and read all that comes back."""
        begun = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(content)
            found = await asyncio.wait_for(reader.read(), _LONGEST)
            writer.close()
        except OSError:
            found = b""
        head, _, body = found.partition(b"\r\n\r\n")
        status = int(head.split()[1]) if head else 0
        text = _joined(body) if b"chunked" in head.lower() else body
        return Answer(status, text.decode("utf-8", "replace"), time.perf_counter() - begun)

    async def post(self, path: str, values: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Send JSON, or bytes as they are."""
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        return await self.send(self.request(f"/api/{path}", body, headers))

    async def waiting(self) -> int:
        """How many draws wait or are being done."""
        answer = await self.send(self.request("/api/health"))
        return int(json.loads(answer.text)["queue"]) if answer.status == 200 else -1

    async def empty(self, most: float) -> float:
        """The seconds until no draw waits any more; infinite after `most`."""
        begun = time.perf_counter()
        while await self.waiting() != 0:
            if time.perf_counter() - begun > most:
                return float("inf")
            await asyncio.sleep(0.01)
        return time.perf_counter() - begun


def _joined(body: bytes) -> bytes:
    """A chunked body as one."""
    parts = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16) if size else 0
        parts.append(rest[:count])
        body = rest[count + 2 :]
    return b"".join(parts)
