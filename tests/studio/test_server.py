"""The studio behind a real server: ports, closed tabs, slow readers, many requests at once."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from support.places import ROOT
from support.studio import TOKEN, events, run, served, studio_in
from usd3.studio.server import HOST, free_socket, serve

LONG = 1000  # steps


@pytest.fixture
def place(folder):
    """A studio with a real server, and its port."""
    studio = studio_in(folder)
    with served(studio) as port:
        yield studio, port


def request(port, path, body=None, page=None, length=None):
    """The bytes of a request."""
    body = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"X-USD3-Token: {TOKEN}"]
    lines += [f"Content-Length: {len(body) if length is None else length}", "Connection: close"]
    lines += [] if page is None else [f"X-USD3-Page: {page}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def wish(folder, kind="array", steps=4, **fields):
    empty = {"array": [[-1] * 4] * 3, "melody": [-1] * 32}[kind]
    return {"model": str(folder / kind), "object": empty, "num": 1, "steps": steps, "seed": 1, **fields}


def sent(port, content):
    connection = socket.create_connection((HOST, port), timeout=20)
    connection.sendall(content)
    return connection


def status_and_body(content):
    head, _, body = content.partition(b"\r\n\r\n")
    text = body.decode()
    if b"chunked" in head.lower():
        parts, rest = [], text
        while rest:
            size, _, rest = rest.partition("\r\n")
            parts.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        text = "".join(parts)
    return int(head.split()[1]), text


def answer(port, content):
    with sent(port, content) as connection:
        return status_and_body(b"".join(iter(lambda: connection.recv(65536), b"")))


def read_until(connection, words):
    seen = b""
    while words not in seen:
        part = connection.recv(65536)
        assert part, seen
        seen += part


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_taken_port_gives_the_next_one():
    with free_socket(0) as first:
        port = first.getsockname()[1]
        with free_socket(port) as second:
            assert second.getsockname()[1] > port
            assert second.getsockname()[0] == "127.0.0.1"


def test_a_closed_tab_stops_its_draw_and_the_next_one_begins(place, folder):
    studio, port = place
    with sent(port, request(port, "/api/draw", wish(folder, "melody", LONG))) as connection:
        read_until(connection, b"event: frame")
        assert len(studio.line) == 1
    began = time.process_time()  # of the studio, too: what else the machine does takes no part
    status, text = answer(port, request(port, "/api/draw", wish(folder)))
    assert (status, events(text)[-1][0]) == (200, "done")
    assert time.process_time() - began < 3
    wait_until(lambda: len(studio.line) == 0)


def test_a_tab_that_closes_while_it_waits_leaves_the_line(place, folder):
    studio, port = place
    with sent(port, request(port, "/api/draw", wish(folder, "melody", LONG))):
        wait_until(lambda: len(studio.line) == 1)
        with sent(port, request(port, "/api/draw", wish(folder))) as waiting:
            read_until(waiting, b'event: queued\ndata: {"before":1}')
            assert len(studio.line) == 2
        wait_until(lambda: len(studio.line) == 1)
    wait_until(lambda: len(studio.line) == 0)


def test_another_draw_of_the_same_tab_ends_the_first(place, folder):
    _, port = place
    with sent(port, request(port, "/api/draw", wish(folder, "melody", LONG), "tab")) as first:
        assert b"200 OK" in first.recv(65536)
        status, text = answer(port, request(port, "/api/draw", wish(folder), "tab"))
        assert (status, events(text)[-1][0]) == (200, "done")
        ended = b"".join(iter(lambda: first.recv(65536), b""))
        assert b'{"error":"stopped"}' in ended


def test_200_requests_at_once_are_answered_or_refused_and_none_is_lost(place, folder):
    studio, port = place
    answer(port, request(port, "/api/draw", wish(folder)))

    async def one(number):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(request(port, "/api/draw", wish(folder, seed=number, frames=0, steps=2)))
        content = await reader.read()
        writer.close()
        return status_and_body(content)

    async def many():
        return await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(200))), 20)

    answers = run(many())
    done = [events(text)[-1] for status, text in answers if status == 200]
    assert len(done) >= 33
    assert {name for name, _ in done} == {"done"}
    for status, text in answers:
        assert status == 200 or (status == 503 and "try again" in json.loads(text)["error"])
    wait_until(lambda: len(studio.line) == 0)
    status, text = answer(port, request(port, "/api/draw", wish(folder)))
    assert (status, events(text)[-1][0]) == (200, "done")


def test_a_body_that_does_not_come_is_given_up(place, folder, monkeypatch):
    monkeypatch.setattr("usd3.studio.guard._BODY_SECONDS", 0.1)
    _, port = place
    slow = request(port, "/api/draw", wish(folder), length=5000)
    status, text = answer(port, slow)
    assert status == 408
    assert "did not arrive" in text


def test_half_a_body_and_goodbye_leaves_nothing(place, folder):
    studio, port = place
    for _ in range(20):
        sent(port, request(port, "/api/draw", wish(folder), length=5000)).close()
    assert answer(port, request(port, "/api/health"))[0] == 200
    assert len(studio.line) == 0


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 1000, b"GET " + b"a" * 99999]
)
def test_what_is_no_request_does_no_harm(junk, place):
    _, port = place
    with contextlib.suppress(OSError), sent(port, junk) as connection:
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65536)
    assert answer(port, request(port, "/api/health"))[0] == 200


@pytest.mark.skipif(os.name == "nt", reason="has no SIGINT for children")
def test_the_command_prints_its_link_and_ends_cleanly(tmp_path):
    pipe, errors = subprocess.PIPE, tmp_path / "errors"
    code = "import sys; from usd3.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "studio", "sudoku", "--port", "18421", "--no-browser", "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with errors.open("w") as stderr:
        process = subprocess.Popen(command, stdout=pipe, stderr=stderr, text=True, cwd=tmp_path, env=environment)
    with process:
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, errors.read_text()
        assert "/?token=" in line
        port, token = int(line.split(":")[2].split("/")[0]), line.strip().partition("token=")[2]
        assert len(token) >= 32
        head = (
            f"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-USD3-Token: {token}\r\nConnection: close\r\n\r\n"
        )
        wait_until(lambda: _listens(port))
        status, text = answer(port, head.encode())
        assert (status, json.loads(text)["chosen"]) == (200, "sudoku")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert "has ended" in rest
    assert errors.read_text() == ""


def _listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection((HOST, port), timeout=1).close()
        return True
    return False


def test_the_browser_is_opened_with_the_link_and_ctrl_c_ends_it_all(folder, monkeypatch):
    opened, said = [], []

    def runs(server, sockets):
        assert sockets[0].getsockname()[0] == "127.0.0.1"
        wait_until(lambda: opened)
        raise KeyboardInterrupt

    monkeypatch.setattr("uvicorn.Server.run", runs)
    monkeypatch.setattr("webbrowser.open", opened.append)
    serve(studio_in(folder).shelf, 0, token="abc", say=said.append)
    assert said[0].endswith(opened[0])
    assert opened[0].endswith("/?token=abc")
    assert said[-1] == "usd3 studio has ended."


def test_the_browser_stays_closed_where_nobody_wants_it(folder, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    monkeypatch.setattr("webbrowser.open", lambda link: pytest.fail("opened"))
    lines = []
    serve(studio_in(folder).shelf, 0, browse=False, say=lines.append)
    serve(studio_in(folder).shelf, 0, browse=False, say=lines.append)
    links = [line for line in lines if "token=" in line]
    assert len({link.partition("token=")[2] for link in links}) == 2


def test_no_free_port_is_one_line(monkeypatch):
    monkeypatch.setattr("usd3.studio.server._MOST_TRIED", 1)
    with free_socket(0) as first, pytest.raises(OSError, match="--port"):
        free_socket(first.getsockname()[1])
