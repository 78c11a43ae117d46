"""The measured trainings of a study, kept in the folder paper/ without their weights, for later runs to go on with.

An archive has the recipes, logs and results of trainings, the reference rows, and which machines measured them. It
names no folder of these machines: `<root>`, `<paper>` and `<data>` stand for that of all runs, that of the tables, and
the data.
"""

import hashlib
import io
import json
import lzma
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from usd3._internal.checks import require
from usd3._internal.files import write_whole, written_whole
from usd3._internal.locks import locked
from usd3._internal.yaml_json import parse_yaml
from usd3.kinds.numpy_files import read_arrays
from usd3.training.folder import RECIPE
from usd3_paper.state import STATE
from usd3_paper.study import Settings, Study, precision

__all__ = ["archive_of", "keep", "unpack"]

_RESULTS, _CONFIG = "comparison.json", "config.json"
_OF_TRAINING = (RECIPE, "data.json", _CONFIG, _RESULTS, "logs/version_*/metrics.csv")
_OF_COMPARISON = (_RESULTS, "references.json")
_LARGEST = 2**26  # bytes of a file in an archive; results of 862 melodies take 100 kB
_CHOSEN = ("steps", "budget", "contents", "precision")  # what all trainings in an archive share


def archive_of(study: Study, paper: Path) -> Path:
    """The file with the kept trainings of a study."""
    return paper / "studies" / study.name / "trainings.tar.xz"


def keep(study: Study, paper: Path, root: Path) -> list[str]:
    """Write the archive of the measured trainings of a run; their names. Refuses to lose or to mix trainings."""
    out, file = root / study.name, archive_of(study, paper)
    if not (out / STATE).is_file():
        raise FileNotFoundError(f"{out}: expected a run of {study.name} (--out says where all runs are)")
    require(not study.needs, "name", study.name, f"a study by itself; this one needs {', '.join(study.needs)}")
    with locked(out, "study", "out"):
        texts, state = _texts_of_run(study, out), json.loads((out / STATE).read_text(encoding="utf-8"))
        names = _names(texts)
        require(bool(names), "out", out, "a run with trainings that are measured")
        recipe = parse_yaml(texts[f"{names[0]}/{RECIPE}"])
        state |= {"done": [], "finished": False, "precision": recipe["training"]["precision"]}
        state["contents"] = _contents(_path_in(study, state["data"]))
        if file.is_file():
            before = _texts(file)
            _require_same(json.loads(before[STATE]), state, file)
            lost = sorted(set(_names(before)) - set(names))
            require(not lost, "out", out, f"a run that has {', '.join(lost)} too, as {file.name} has (--kept true)")
        texts[STATE] = json.dumps(state, indent=2) + "\n"
        marks = {place: mark for mark, place in _marks(study, paper, root, state["data"]).items()}
        _write(file, {name: _marked(name, text, marks) for name, text in texts.items()})
    return names


def unpack(study: Study, paper: Path, root: Path, settings: Settings) -> list[str] | None:
    """Begin a run with the kept trainings; their names, or None if it has begun.

    Refuses other data, steps or minutes than theirs, and a machine with another precision.
    """
    out, file, chosen = root / study.name, archive_of(study, paper), study.chosen(settings)
    data = chosen["data"]
    if (out / STATE).is_file():
        return None
    require(file.is_file(), "kept", True, f"false for {study.name}, of which no trainings are kept")
    texts = _texts(file)
    state, names = json.loads(texts.pop(STATE)), _names(texts)
    wanted = precision() if study.uses_precision() else state["precision"]
    _require_same(state, {**chosen, "contents": _contents(_path_in(study, data)), "precision": wanted}, file)
    with locked(out, "study", "out"):
        marks = _marks(study, paper, root, data)
        for name, text in texts.items():
            write_whole(out / name, _marked(name, text, marks))
        begun = {name: value for name, value in state.items() if name not in ("contents", "precision")}
        write_whole(out / STATE, json.dumps(begun | {"data": data}, indent=2) + "\n")  # the last: now it has begun
    return names


# ---- what is kept ---------------------------------------------------------------------------------------------------


def _texts_of_run(study: Study, out: Path) -> dict[str, str]:
    """The files to keep of a run by their names within it."""
    comparisons = [out / place for place, command in study.results.items() if command == "compare"]
    trainings = [file.parent for folder in comparisons for file in sorted(folder.glob(f"*/{_RESULTS}"))]
    files = [folder / name for folder in comparisons for name in _OF_COMPARISON]
    for folder in trainings:
        if (folder / _CONFIG).is_file():
            files += [file for pattern in _OF_TRAINING for file in sorted(folder.glob(pattern))]
    return {file.relative_to(out).as_posix(): file.read_text(encoding="utf-8") for file in files if file.is_file()}


def _names(texts: Mapping[str, str]) -> list[str]:
    """The folders of the trainings."""
    return sorted(Path(name).parent.as_posix() for name in texts if Path(name).name == RECIPE)


def _path_in(study: Study, data: str | None) -> Path | None:
    """The file of the data; None for a word that stands for data."""
    return None if data is None or data in study.kinds() else Path(data)


def _contents(file: Path | None) -> str | None:
    """A fingerprint of what is in a file: of all arrays, wherever and by whichever version they were written."""
    if file is None:
        return None
    if file.suffix != ".npz":
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    found, arrays = hashlib.sha256(), read_arrays(file)
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


def _require_same(kept: Mapping[str, Any], now: Mapping[str, Any], file: Path) -> None:
    """Refuse trainings of other steps, minutes, data or numbers than the kept ones in the file."""
    for part in _CHOSEN:
        title = "contents of the data" if part == "contents" else part
        require(now[part] == kept[part], title, now[part], f"{kept[part]}, as the trainings kept in {file} have")


# ---- the archive ----------------------------------------------------------------------------------------------------


def _write(file: Path, texts: Mapping[str, str]) -> None:
    with written_whole(file) as temporary, tarfile.open(temporary, "w:xz") as archive:
        for name in sorted(texts):
            content, member = texts[name].encode(), tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _texts(file: Path) -> dict[str, str]:
    """The files of an archive by their names. Refuses one outside of the folder of the run, and a huge one."""
    texts = {}
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                path = Path(member.name)
                inside = member.isfile() and not path.is_absolute() and ".." not in path.parts
                require(inside, "kept", member.name, "a file in the folder of the study")
                require(member.size <= _LARGEST, "kept", member.name, f"a file of at most {_LARGEST:,} bytes")
                content = archive.extractfile(member)
                texts[member.name] = content.read().decode() if content is not None else ""
        missing = sorted(set(_CHOSEN) - set(json.loads(texts[STATE])))
    except (KeyError, TypeError, EOFError, UnicodeDecodeError, tarfile.TarError, lzma.LZMAError) as error:
        raise ValueError(f"{file}: expected what usd3 paper keep writes ({error!r})") from None
    require(not missing, "kept", file, f"what usd3 paper keep writes, with {', '.join(missing)}")
    return texts


def _marks(study: Study, paper: Path, root: Path, data: str | None) -> dict[str, str]:
    """What an archive has in place of the folders and of the data of a machine."""
    file = _path_in(study, data)
    return {"<root>": str(root), "<paper>": str(paper)} | ({} if file is None else {"<data>": str(file)})


def _marked(name: str, text: str, parts: Mapping[str, str]) -> str:
    """A file with other texts in the values of its JSON or YAML; other files have no folders in them."""
    if name.endswith(".json"):
        return json.dumps(_replaced(json.loads(text), parts), indent=2, ensure_ascii=False) + "\n"
    if name.endswith(".yaml"):
        return str(yaml.safe_dump(_replaced(parse_yaml(text), parts), sort_keys=False, allow_unicode=True))
    return text


def _replaced(value: Any, parts: Mapping[str, str]) -> Any:
    """The same value with other texts, wherever one is a whole path or the beginning of one."""
    if isinstance(value, Mapping):
        return {key: _replaced(part, parts) for key, part in value.items()}
    if isinstance(value, list):
        return [_replaced(part, parts) for part in value]
    if isinstance(value, str):
        for old in sorted(parts, key=len, reverse=True):  # a folder may lie in another
            value = parts[old].join(re.split(rf"(?<![\w./-]){re.escape(old)}(?![\w.-])", value))
    return value
