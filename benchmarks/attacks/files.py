"""Files damaged at random: every command that reads one works, or refuses it in one line, and harms nothing."""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from attacks.cases import Case
from attacks.children import Program, complaint, contents, run_usd3, usd3_main
from attacks.material import Material, train_words

__all__ = ["cases", "planted"]

_FAMILY = "damaged files"
_SAMPLE = ("--num", "2", "--steps", "2", "--out", "new.npz")
_MEASURE = ("--limit", "4", "--runs", "1", "--bound_samples", "1", "--steps", "2", "--out", "new.json")
_RESUME = ["train", "--resume", "interrupted", "--progress", "false"]


@dataclass(frozen=True)
class Target:
    """A file, what is copied to have it, and the command that reads it; `writes` is what that may change."""

    file: str
    copied: tuple[str, ...]
    command: list[str]
    writes: tuple[str, ...] = ("new",)


_RUN = ("data.npz", "interrupted")
_MODEL = ("data.npz", "whole")
_TARGETS = (
    Target("whole/config.json", _MODEL, ["sample", "whole", *_SAMPLE]),
    Target("whole/config.json", _MODEL, ["info", "whole"]),
    Target("whole/config.json", _MODEL, ["evaluate", "whole", *_MEASURE]),
    Target("whole/config.json", _MODEL, ["export", "whole", "--out", "new"]),
    Target("whole/model.safetensors", _MODEL, ["sample", "whole", *_SAMPLE]),
    Target("whole/model.safetensors", _MODEL, ["info", "whole"]),
    Target("whole/model.safetensors", _MODEL, ["export", "whole", "--out", "new"]),
    Target("whole/recipe.yaml", _MODEL, ["export", "whole", "--out", "new"]),
    Target(
        "evaluation.json",
        (*_MODEL, "evaluation.json"),
        ["export", "whole", "--out", "new", "--metrics", "evaluation.json"],
    ),
    Target("interrupted/recipe.yaml", _RUN, _RESUME, ("interrupted",)),
    Target("interrupted/data.json", _RUN, _RESUME, ("interrupted",)),
    Target("interrupted/config.json", _RUN, _RESUME, ("interrupted",)),
    Target("interrupted/model.safetensors", _RUN, _RESUME, ("interrupted",)),
    Target("interrupted/checkpoints/step-00000022.ckpt", _RUN, _RESUME, ("interrupted",)),
    Target("interrupted/logs/version_0/metrics.csv", _RUN, _RESUME, ("interrupted",)),
    Target("data.npz", ("data.npz",), [*train_words("array", path="data.npz", steps=2), "--run", "new"]),
    Target("data.npy", ("data.npy",), [*train_words("array", path="data.npy", steps=2), "--run", "new"]),
    Target("data.npz", _MODEL, ["evaluate", "whole", *_MEASURE]),
    Target(
        "recipe.yaml",
        ("data.npz", "recipe.yaml"),
        [
            "train",
            "recipe.yaml",
            "--data.path",
            "data.npz",
            "--training.steps",
            "2",
            "--progress",
            "false",
            "--run",
            "new",
        ],
    ),
    Target(
        "songs/3.mid", ("songs",), [*train_words("midi", path="songs", steps=2), "--data.length", "32", "--run", "new"]
    ),
    Target(
        "prompt.mid", ("music", "prompt.mid"), ["sample", "music", "--prompt", "prompt.mid", "--prefix", "4", *_SAMPLE]
    ),
    Target(
        "prompt.npz", (*_MODEL, "prompt.npz"), ["sample", "whole", "--prompt", "prompt.npz", "--prefix", "2", *_SAMPLE]
    ),
    Target(
        "prompt.npy", (*_MODEL, "prompt.npy"), ["sample", "whole", "--prompt", "prompt.npy", "--prefix", "2", *_SAMPLE]
    ),
)


def cases(material: Material, seed: int, rounds: int) -> Iterator[Case]:
    """Each file damaged in each way, so many times."""
    for number in range(rounds):
        for target in _TARGETS:
            for name, damage in _damages(target.file).items():
                about = f"{target.file}, usd3 {target.command[0]}, round {number}"
                chance = random.Random(f"{seed} {name} {about}")
                yield Case(_FAMILY, name, about, partial(_damaged, material, target, damage, chance))


def planted(material: Material) -> Iterator[Case]:
    """What has to be counted as a failure: programs that end as ours should not."""

    def traceback() -> int:
        raise KeyError("planted")

    def two_lines() -> int:
        print("usd3 info: error: planted\nand more", file=sys.stderr)
        return 1

    def other_file() -> int:
        Path("whole/recipe.yaml").write_text("planted")
        return 0

    def memory() -> int:
        return len(bytearray(b"x") * (2**30 + 2**28)) * 0

    def crash() -> int:
        os.abort()

    for program in (traceback, two_lines, other_file, memory, crash):
        run = partial(_damaged, material, _TARGETS[1], _emptied, random.Random(0), program=program)
        yield Case(_FAMILY, "planted", program.__name__, run)


Damage = Callable[[bytes, random.Random], bytes | None]


def _damaged(
    material: Material,
    target: Target,
    damage: Damage,
    chance: random.Random,
    folder: Path,
    program: Program = usd3_main,
) -> str | None:
    material.copy_to(folder, *target.copied)
    file = folder / target.file
    content = damage(file.read_bytes(), chance)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    before = contents(folder)
    ended = run_usd3(target.command, folder, program)
    return complaint(ended, target.command[0]) or _harm(before, folder, target, ended.status, material)


def _harm(before: dict[str, str], folder: Path, target: Target, status: int, material: Material) -> str | None:
    """What happened to other files; a command that refuses loses nothing, and leaves nothing but what it had to say."""
    after = contents(folder)
    for name, digest in before.items():
        own = name.startswith(target.writes)  # there a damaged checkpoint gets another name
        if not ((own and (status == 0 or digest in after.values())) or after.get(name) == digest):
            return f"changed {name}"
    added = [name for name in after.keys() - before.keys() if not name.startswith(target.writes)]
    if added:
        return f"left {', '.join(added)}"
    left = [path.name for path in folder.rglob(".*")]
    if left:
        return f"left {', '.join(left)}"
    resumed = target.file.endswith((".ckpt", ".csv", "data.json")) and status == 0
    return "resumed to other weights" if resumed and not material.has_weights(folder / "interrupted") else None


def _damages(file: str) -> dict[str, Damage]:
    plain = {
        "a bit flipped": _one_bit,
        "a bit flipped near the beginning": _early_bit,
        "many bits flipped": _many_bits,
        "truncated": _truncated,
        "empty": _emptied,
        "garbage": _garbage,
        "garbage inside": _garbage_inside,
        "a part missing": _part_missing,
        "zeros inside": _zeros_inside,
        "more at the end": _extended,
        "missing": lambda content, chance: None,
    }
    return plain | ({"a value exchanged": partial(_exchanged, yaml=file.endswith(".yaml"))} if _is_text(file) else {})


def _is_text(file: str) -> bool:
    return file.endswith((".json", ".yaml"))


def _flipped(content: bytes, places: list[int]) -> bytes:
    found = bytearray(content)
    for place in places:
        found[place // 8] ^= 1 << place % 8
    return bytes(found)


def _one_bit(content: bytes, chance: random.Random) -> bytes:
    return _flipped(content, [chance.randrange(8 * len(content))])


def _early_bit(content: bytes, chance: random.Random) -> bytes:
    return _flipped(content, [chance.randrange(8 * min(128, len(content)))])


def _many_bits(content: bytes, chance: random.Random) -> bytes:
    return _flipped(content, [chance.randrange(8 * len(content)) for _ in range(chance.randint(2, 100))])


def _truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _emptied(content: bytes, chance: random.Random) -> bytes:
    return b""


def _garbage(content: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 10, len(content))))


def _part(content: bytes, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(content))
    return begin, min(len(content), begin + chance.randint(1, max(1, len(content) // 4)))


def _garbage_inside(content: bytes, chance: random.Random) -> bytes:
    begin, end = _part(content, chance)
    return content[:begin] + chance.randbytes(end - begin) + content[end:]


def _part_missing(content: bytes, chance: random.Random) -> bytes:
    begin, end = _part(content, chance)
    return content[:begin] + content[end:]


def _zeros_inside(content: bytes, chance: random.Random) -> bytes:
    begin, end = _part(content, chance)
    return content[:begin] + bytes(end - begin) + content[end:]


def _extended(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.randint(1, 1000))


_OTHER: tuple[Any, ...] = (
    None, True, 0, -1, 3, 10**9, 10**30, 1.5, -0.5, 1e308, float("nan"), float("inf"), "", "x", "x" * 5000, "None",
    "/", "..", "\x00", [], [0], [[]], [-1, 2], ["x"], {}, {"x": 1}, {"class_path": "x"},
)  # fmt: skip


def _exchanged(content: bytes, chance: random.Random, yaml: bool) -> bytes:
    """The same with another value somewhere, or without it, or with one more."""
    found = _load(content, yaml)
    places = list(_places(found))
    parent, key = chance.choice(places)
    what = chance.random()
    if what < 0.1:
        del parent[key]
    elif what < 0.15 and isinstance(parent, dict):
        parent[chance.choice(["x", "", "seed", "kind"])] = chance.choice(_OTHER)
    else:
        parent[key] = chance.choice(_OTHER)
    return _dump(found, yaml)


def _load(content: bytes, is_yaml: bool) -> Any:
    return yaml.safe_load(content) if is_yaml else json.loads(content)


def _dump(found: Any, is_yaml: bool) -> bytes:
    text: str = yaml.safe_dump(found, sort_keys=False) if is_yaml else json.dumps(found, indent=2)
    return text.encode()


def _places(found: Any) -> Iterator[tuple[Any, Any]]:
    """All places in plain data: a mapping or list, and a key of it."""
    pairs = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in pairs:
        yield found, key
        yield from _places(value)
