"""Small models of every kind in folders, with random weights, and the studio without a network around it."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
import uvicorn
from starlette.testclient import TestClient

from usd3.core.options import DiffusionConfig
from usd3.kinds.array import Array
from usd3.kinds.base import Kind
from usd3.kinds.board.kind import Board
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.image.folders import save_network
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.vqgan import VQGAN
from usd3.kinds.melody.kind import Melody
from usd3.kinds.options import DataConfig
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.table.options import TableOptions
from usd3.kinds.text.kind import Text
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.studio.app import Studio
from usd3.studio.models import Shelf
from usd3.studio.server import free_socket

__all__ = ["TOKEN", "client", "events", "run", "served", "small_kinds", "small_model", "studio_in"]

Result = TypeVar("Result")

TOKEN = "a-token"
_ADDRESS = "http://127.0.0.1:8421"
_TABLE = "age,sex,job,born\n" + "".join(
    f"{17 + i % 40},{'FM'[i % 2]},{['cook', 'smith', ''][i % 3]},19{50 + i % 40}-0{1 + i % 9}-11\n" for i in range(120)
)


def small_kinds(folder: Path) -> dict[str, Kind]:
    """A small kind of each name; files that it needs are written into the folder."""
    table = folder / "people.csv"
    table.write_text(_TABLE)
    torch.manual_seed(0)
    save_network(folder / "vqgan", VQGAN(num_codes=8, code_dim=4, filters=(4, 4, 4), blocks=1))
    letters = " abcdefghijklmnopqrstuvwxyz."
    return {
        "array": Array(5, (3, 4)),
        "melody": Melody(129, (32,)),
        "chorale": Chorale(129, (32, 4)),
        "board": Board(4, (4, 4), "1234", "sudoku"),
        "text": Text(len(letters), (24,), alphabet=letters),
        "sequence": LetterSequence(5, (12,), "ACGT", "dna", True, True),
        "table": DataConfig("table", str(table), table=TableOptions()).load().kind,
        "image_tokens": ImageTokens(8, (4, 4), ImageSource(str(folder / "vqgan"), str(folder / "images"))),
    }


def small_model(folder: Path, kind: Kind, noise: str = "absorbing", **config) -> Pipeline:
    """An untrained model of this kind, written into a folder."""
    torch.manual_seed(1)
    usual = {
        "diffusion": DiffusionConfig(noise=noise),
        "model": ModelConfig(dim=8, depth=1, heads=2, mlp=8, time_dim=8),
        "given": "random",
    }
    parts = usual | config
    pipeline = Pipeline(PipelineConfig(kind.num_classes, list(kind.shape), kind=kind.as_dict(), **parts))
    for weight in pipeline.model.parameters():  # a new network says the same everywhere
        torch.nn.init.normal_(weight, std=0.3)
    pipeline.save_pretrained(folder)
    return pipeline


def studio_in(folder: Path, **options) -> Studio:
    """A studio that opens models in a folder."""
    return Studio(Shelf((folder,), device="cpu"), TOKEN, **options)


def client(studio: Studio, **headers: str) -> TestClient:
    """A browser's side of the studio."""
    sent = {"X-USD3-Token": TOKEN, **headers}
    return TestClient(studio.app, base_url=_ADDRESS, headers=sent, raise_server_exceptions=False)


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, in a thread of its own: an open browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, scenario).result()


def events(text: str) -> list[tuple[str, dict]]:
    """The events of an answer, their names and data."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


@contextlib.contextmanager
def served(studio: Studio) -> Iterator[int]:
    """The studio behind a real server; its port."""
    listening = free_socket(0)
    config = uvicorn.Config(studio.app, log_level="error", lifespan="off", ws="none", http="h11", loop="asyncio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listening.getsockname()[1]
    finally:
        studio.close()
        server.should_exit = True
        thread.join(10)
        listening.close()
