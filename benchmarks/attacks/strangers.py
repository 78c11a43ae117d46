"""Recipes, models, data and runs that a stranger wrote: nothing is executed, and they get no more than others.

Whatever they want to be executed leaves a file behind. A module `stranger` can be imported in the folder of a case.
"""

import io
import json
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml  # type: ignore[import-untyped]

from attacks.cases import Case
from attacks.children import Program, complaint, run_usd3, usd3_main
from attacks.material import Material, train_words

__all__ = ["cases", "planted"]

_FAMILY = "strangers"
_MARK = "EXECUTED"
_MODULE = f"""
from pathlib import Path
import usd3
Path({_MARK!r}).touch()
class Net(usd3.nets.Transformer): pass
class Method(usd3.methods.USD3): pass
"""
_SAMPLE = ["--num", "2", "--steps", "2", "--out", "new.npz"]
_MEASURE = ["--limit", "4", "--runs", "1", "--bound_samples", "1", "--steps", "2", "--out", "new.json"]
_TRAIN = ["train", "recipe.yaml", "--progress", "false", "--run", "new"]
_RESUME = ["train", "--resume", "interrupted", "--training.steps", "26", "--progress", "false"]

Prepare = Callable[[Path], None]


class _Evil:
    """What is done when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {_MARK}",)


_COPIED = ("data.npz", "whole", "interrupted", "recipe.yaml", "prompt.npz", "prompt.mid", "music", "songs")


def cases(material: Material) -> Iterator[Case]:
    """All of them; they are not drawn at random."""
    for kind, about, command, prepare in (*_naming_code(), *_tags(), *_pickles(), *_sizes(), *_bombs(), *_data()):
        yield Case(_FAMILY, kind, f"{about}, usd3 {' '.join(command[:2])}", partial(_tried, material, command, prepare))


def planted(material: Material) -> Iterator[Case]:
    """What has to be counted as a failure: a program that does what a stranger says, or takes what one asks for."""

    def obey() -> int:
        return int(yaml.unsafe_load(f"!!python/object/apply:os.system ['touch {_MARK}']"))

    def allocate() -> int:
        np.empty(10**15, dtype=np.uint8)
        return 0

    for program in (obey, allocate):
        run = partial(_tried, material, ["info"], lambda folder: None, program=program)
        yield Case(_FAMILY, "planted", program.__name__, run)


def _tried(
    material: Material, command: list[str], prepare: Prepare, folder: Path, program: Program = usd3_main
) -> str | None:
    material.copy_to(folder, *_COPIED)
    (folder / "stranger.py").write_text(_MODULE)
    prepare(folder)

    def importing() -> int:
        sys.path.insert(0, str(folder))  # as where a user has PYTHONPATH=.
        return program()

    ended = run_usd3(command, folder, importing)
    if list(folder.rglob(_MARK)):
        return "executed what a stranger wrote"
    return complaint(ended, command[0])


Told = tuple[str, str, list[str], Prepare]


def _naming_code() -> Iterator[Told]:
    """Names of classes and functions in place of ours, and the parser's way to make an object."""
    names = ("os.system", "stranger.Net", "stranger.Method", "subprocess.Popen", "builtins.eval", "stranger", "..x.Y")
    uses = (["sample", "whole", *_SAMPLE], ["evaluate", "whole", *_MEASURE], ["export", "whole", "--out", "new"])
    for section, key in (("model", "net"), ("method", "name")):
        for name in names:
            told = {section: {key: name, "options": {"command": f"touch {_MARK}"}}}
            yield "naming code", f"{section}.{key} {name}", _TRAIN, partial(_add_to_yaml, "recipe.yaml", told)
            yield (
                "naming code",
                f"{section}.{key} {name}",
                _RESUME,
                partial(_add_to_yaml, "interrupted/recipe.yaml", told),
            )
            for use in (*uses, ["info", "whole"]):
                yield "naming code", f"{section}.{key} {name}", use, partial(_add_to_json, "whole/config.json", told)
    made = {"class_path": "os.system", "init_args": {"command": f"touch {_MARK}"}}
    for place in ("model", "method", "data", "training", "diffusion", "seed", "evaluation", "config", "corrector"):
        for command in (_TRAIN, ["compare", "recipe.yaml", "--methods", "usd3", "--out", "new"], _RESUME):
            file = "interrupted/recipe.yaml" if command is _RESUME else "recipe.yaml"
            yield "naming code", f"{place} as a class", command, partial(_set_in_yaml, file, (place,), made)
    for section, key in (
        ("model", "options"),
        ("method", "options"),
        ("diffusion", "schedule_options"),
        ("data", "path"),
    ):
        yield (
            "naming code",
            f"{section}.{key}",
            _TRAIN,
            partial(_set_in_yaml, "recipe.yaml", (section, key), {"a": made}),
        )


def _tags() -> Iterator[Told]:
    """YAML that makes objects of Python."""
    texts = (
        f"!!python/object/apply:os.system ['touch {_MARK}']",
        f"!!python/object/new:subprocess.Popen [['touch', {_MARK}]]",
        "!!python/name:os.system",
        "!!python/module:stranger",
        "!!python/object:stranger.Net {}",
        f"!!python/object/apply:builtins.exec [\"open('{_MARK}', 'w')\"]",
    )
    for text in texts:
        for section in ("seed", "model"):
            prepare = partial(_write, "recipe.yaml", f"{section}: {text}\n")
            yield "YAML tags", f"{section}: {text}", _TRAIN, prepare
            yield "YAML tags", text, _RESUME, partial(_write, "interrupted/recipe.yaml", f"{section}: {text}\n")
        yield "YAML tags", text, [*_TRAIN, "--model.options", text], lambda folder: None
        yield "YAML tags", text, ["export", "whole", "--out", "new"], partial(_write, "whole/recipe.yaml", text)


def _pickles() -> Iterator[Told]:
    """Pickles where arrays, weights and checkpoints are expected."""

    def array(name: str, folder: Path) -> None:
        found = np.array([[_Evil()] * 8] * 4, dtype=object)
        if name.endswith("npy"):
            np.save(folder / name, found, allow_pickle=True)
        else:
            np.savez(folder / name, train=found, tokens=found)

    def pickled(name: str, folder: Path) -> None:
        (folder / name).write_bytes(pickle.dumps(_Evil()))

    def checkpoint(folder: Path) -> None:
        torch.save({"state_dict": _Evil()}, folder / "interrupted/checkpoints/step-00000022.ckpt")

    def legacy(folder: Path) -> None:
        torch.save(_Evil(), folder / "interrupted/checkpoints/step-00000022.ckpt", _use_new_zipfile_serialization=False)

    prompt = ["sample", "whole", "--prefix", "2", *_SAMPLE, "--prompt"]
    for make in (array, pickled):
        for name in ("data.npz", "data.npy"):
            words = [*train_words("array", path=name, steps=2), "--run", "new"]
            yield "pickles", f"{make.__name__} {name}", words, partial(make, name)
        for name in ("prompt.npz", "prompt.npy"):
            yield "pickles", f"{make.__name__} {name}", [*prompt, name], partial(make, name)
        for name in ("data.npz",):
            yield "pickles", f"{make.__name__} {name}", ["evaluate", "whole", *_MEASURE], partial(make, name)
    for use in (["sample", "whole", *_SAMPLE], ["info", "whole"], ["export", "whole", "--out", "new"]):
        yield "pickles", "weights", use, partial(pickled, "whole/model.safetensors")
    yield "pickles", "a checkpoint", _RESUME, checkpoint
    yield "pickles", "a checkpoint of the old kind", _RESUME, legacy
    yield "pickles", "a checkpoint", _RESUME, partial(pickled, "interrupted/checkpoints/step-00000022.ckpt")


def _sizes() -> Iterator[Told]:
    """Sizes that no computer has, in models, runs and recipes."""
    places = (
        ("num_classes",), ("shape",), ("prefix",), ("decode",), ("marginal",), ("model", "dim"), ("model", "depth"),
        ("model", "heads"), ("model", "mlp"), ("model", "time_dim"), ("model", "output_blocks"),
        ("diffusion", "num_steps"), ("data", "length"),
    )  # fmt: skip
    for place in places:
        for size in (10**9, 10**18, 10**400):
            value = [size] if place[0] in ("shape", "decode", "marginal") else size
            told = partial(_set_in_json, "whole/config.json", place, value)
            yield "huge sizes", f"{'.'.join(place)} 10^{len(str(size)) - 1}", ["sample", "whole", *_SAMPLE], told
            if len(place) == 2 and place[0] != "data":
                told = partial(_set_in_yaml, "interrupted/recipe.yaml", place, size)
                yield "huge sizes", f"{'.'.join(place)} 10^{len(str(size)) - 1}", _RESUME, told


def _bombs() -> Iterator[Told]:
    """Few bytes that become many, or nest without end."""
    aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(12)
    )
    texts = {
        "aliases": aliases,
        "aliases of mappings": aliases + "model: *a12\n",
        "aliases in a text": f"seed: {json.dumps(aliases)}\n",
        "an alias of itself": "model: &a [*a]\n",
        "merged keys": "x: &a {b: 1}\n"
        + "".join(f"y{i}: &b{i} {{<<: [{', '.join(['*a'] * 50)}]}}\n" for i in range(50)),
        "nested lists": "model: " + "[" * 100_000,
        "nested mappings": "model: " + "{a: " * 100_000,
        "a long number": "seed: " + "9" * 10**6,
        "a long line": "seed: " + "x" * 10**7,
    }
    for about, text in texts.items():
        yield "bombs", f"YAML, {about}", _TRAIN, partial(_write, "recipe.yaml", text)
        yield "bombs", f"YAML, {about}", _RESUME, partial(_write, "interrupted/recipe.yaml", text)
        if len(text) < 10**5:  # as long as an argument may be
            yield "bombs", f"YAML, {about}", [*_TRAIN, "--model.options", text], lambda folder: None
    for about, text in {"nested": "[" * 10**6, "a long number": '{"num_classes": ' + "9" * 10**6 + "}"}.items():
        for use in (["sample", "whole", *_SAMPLE], ["info", "whole"]):
            yield "bombs", f"JSON, {about}", use, partial(_write, "whole/config.json", text)
        yield "bombs", f"JSON, {about}", _RESUME, partial(_write, "interrupted/data.json", text)
        words = ["export", "whole", "--out", "new", "--metrics", "m.json"]
        yield "bombs", f"JSON, {about}", words, partial(_write, "m.json", text)


def _data() -> Iterator[Told]:
    """Arrays, MIDI files and weights that say they are larger than they are, or become so."""
    prompt = ["sample", "whole", "--prefix", "2", *_SAMPLE, "--prompt"]
    for shape, kind in (((10**12, 8), "|u1"), ((2**40, 2**40), "<i8"), ((4, 10**13), "|b1"), ((2, 4), "<U1000000000")):
        for name in ("data.npz", "data.npy"):
            words = [*train_words("array", path=name, steps=2), "--run", "new"]
            yield "huge sizes", f"{name} {shape} {kind}", words, partial(_huge_array, name, shape, kind)
        yield "huge sizes", f"prompt.npy {shape} {kind}", [*prompt, "p.npy"], partial(_huge_array, "p.npy", shape, kind)
    for size in (2**31, 2**33):
        words = [*train_words("array", path="bomb.npz", steps=2), "--run", "new"]
        yield "bombs", f"npz of {size} bytes", words, partial(_zip_bomb, "bomb.npz", size)
        yield "bombs", f"npz of {size} bytes", [*prompt, "bomb.npz"], partial(_zip_bomb, "bomb.npz", size)
    for length in (2**20, 2**40, 2**62):
        for use in (["sample", "whole", *_SAMPLE], ["info", "whole"]):
            told = partial(_long_header, "whole/model.safetensors", length)
            yield "huge sizes", f"safetensors header of {length}", use, told
    songs = [*train_words("midi", path="songs", steps=2), "--data.length", "32", "--run", "new"]
    tune = ["sample", "music", "--prompt", "prompt.mid", "--prefix", "4", *_SAMPLE]
    for about, track, division in _tracks():
        yield "MIDI", about, songs, partial(_midi, "songs/3.mid", track, division)
        yield "MIDI", about, tune, partial(_midi, "prompt.mid", track, division)


def _tracks() -> Iterator[tuple[str, bytes, int]]:
    note, longest = b"\x90\x40\x40%s\x80\x40\x00", b"\xff\xff\xff\x7f"
    yield "a note as long as can be", b"\x00" + note % longest, 480
    yield "many long notes", (longest + note % longest) * 100, 1
    yield "a division of 0", b"\x00" + note % b"\x10", 0
    yield "a division in frames", b"\x00" + note % b"\x10", 0xE728
    yield "a tempo of 0", b"\x00\xff\x51\x03\x00\x00\x00\x00" + note % b"\x10", 480
    yield "a note that never ends", b"\x00\x90\x40\x40", 480
    yield "an event without end", b"\x00\xff\x01\xff\xff\xff\x7f", 480
    yield "nothing", b"", 480


def _midi(name: str, track: bytes, division: int, folder: Path) -> None:
    body = track + b"\x00\xff\x2f\x00"
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, division)
    (folder / name).write_bytes(head + b"MTrk" + struct.pack(">I", len(body)) + body)


def _huge_array(name: str, shape: tuple[int, ...], kind: str, folder: Path) -> None:
    with _stored(folder / name) as file:
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": kind})
        file.write(bytes(64))


def _stored(path: Path) -> Any:
    return path.open("wb") if path.suffix == ".npy" else zipfile.ZipFile(path, "w").open("train.npy", "w")


def _zip_bomb(name: str, size: int, folder: Path) -> None:
    """An array of zeros that packs a thousand times smaller; of the largest only its size is said."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"shape": (size // 8, 8), "fortran_order": False, "descr": "|u1"})
    with (
        zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("train.npy", "w", force_zip64=True) as file,
    ):
        file.write(head.getvalue())
        for _ in range(min(size, 2**29) // 2**24):
            file.write(bytes(2**24))


def _long_header(name: str, length: int, folder: Path) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(struct.pack("<Q", length) + content[8:])


def _write(name: str, text: str, folder: Path) -> None:
    (folder / name).write_text(text)


def _set_in(found: Any, place: tuple[str, ...], value: Any) -> Any:
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    return found


def _set_in_yaml(name: str, place: tuple[str, ...], value: Any, folder: Path) -> None:
    found = yaml.safe_load((folder / name).read_text())
    _set_in(found, place, value)
    (folder / name).write_text(yaml.safe_dump(found))


def _set_in_json(name: str, place: tuple[str, ...], value: Any, folder: Path) -> None:
    found = json.loads((folder / name).read_text())
    _set_in(found, place, value)
    (folder / name).write_text(json.dumps(found))


def _add_to_yaml(name: str, told: dict[str, dict[str, Any]], folder: Path) -> None:
    for section, values in told.items():
        for key, value in values.items():
            _set_in_yaml(name, (section, key), value, folder)


def _add_to_json(name: str, told: dict[str, dict[str, Any]], folder: Path) -> None:
    for section, values in told.items():
        for key, value in values.items():
            _set_in_json(name, (section, key), value, folder)
