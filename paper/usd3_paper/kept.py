"""The measured trainings of a study, kept in the folder paper/ without their weights, for later runs to go on with.

An archive has the recipes, logs and results of trainings, the reference rows, and which machines measured them. It
names no folder of these machines: `<root>`, `<paper>` and `<data>` stand for that of all runs, that of the tables, and
the data.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from usd3._internal.checks import require
from usd3._internal.fields import from_mapping
from usd3._internal.files import write_whole, written_whole
from usd3._internal.yaml_json import read_yaml
from usd3.kinds.options import DataConfig
from usd3.training.folder import RECIPE, require_same_data
from usd3.training.run import data_facts
from usd3_paper.state import STATE
from usd3_paper.study import Study

__all__ = ["archive_of", "keep", "kept_names", "unpack"]

_RESULTS, _CONFIG = "comparison.json", "config.json"
_OF_TRAINING = (RECIPE, "data.json", _CONFIG, _RESULTS, "logs/version_*/metrics.csv")
_OF_COMPARISON = (_RESULTS, "references.json")


def archive_of(study: Study, paper: Path) -> Path:
    """The file with the kept trainings of a study."""
    return paper / "studies" / study.name / "trainings.tar.xz"


def kept_names(file: Path) -> list[str]:
    """The names of the trainings in an archive; none if there is no archive."""
    if not file.is_file():
        return []
    with tarfile.open(file) as archive:
        return sorted(Path(name).parent.name for name in archive.getnames() if Path(name).name == RECIPE)


def keep(study: Study, paper: Path, root: Path) -> list[str]:
    """Write the archive of the measured trainings of a run; their names. Refuses to lose some that are kept already."""
    out, file = root / study.name, archive_of(study, paper)
    if not (out / STATE).is_file():
        raise FileNotFoundError(f"{out}: expected a run of {study.name} (--out says where all runs are)")
    trainings = [folder for place in _comparisons(study) for folder in _measured(out / place)]
    names = sorted(folder.name for folder in trainings)
    require(bool(names), "out", out, "a run with trainings that are measured")
    lost = sorted(set(kept_names(file)) - set(names))
    require(
        not lost, "out", out, f"a run that has {', '.join(lost)} too, as {file.name} has: begin it with --kept true"
    )
    files = [out / STATE, *(out / place / name for place in _comparisons(study) for name in _OF_COMPARISON)]
    files += [path for folder in trainings for pattern in _OF_TRAINING for path in sorted(folder.glob(pattern))]
    hidden = {place: mark for mark, place in _marks(study, paper, root, _data_of(out)).items()}
    with written_whole(file) as temporary, tarfile.open(temporary, "w:xz") as archive:
        for path in filter(Path.is_file, files):
            content = _replaced(path.read_text(encoding="utf-8"), hidden).encode()
            member = tarfile.TarInfo(path.relative_to(out).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return names


def unpack(study: Study, paper: Path, root: Path, data: str | None) -> list[str]:
    """Begin a run with the kept trainings, unless it has begun; their names. Refuses other data than theirs."""
    out, file = root / study.name, archive_of(study, paper)
    if (out / STATE).is_file():
        return []
    names = kept_names(file)
    require(bool(names), "kept", True, f"false for {study.name}, of which no trainings are kept")
    marks = _marks(study, paper, root, data)
    with tarfile.open(file) as archive:
        texts = {name: _replaced(text, marks) for name, text in _texts(archive)}
    state = texts.pop(STATE)
    for name, text in texts.items():
        write_whole(out / name, text)
    _require_same_data(next(path for path in out.glob(f"*/*/{RECIPE}")).parent)
    write_whole(out / STATE, state)  # the last: with it the run has begun
    return names


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    """The names and contents of the files, none of which may lie outside of the folder."""
    for member in archive.getmembers():
        path = Path(member.name)
        inside = member.isfile() and not path.is_absolute() and ".." not in path.parts
        require(inside, "kept", member.name, "a file in the folder of the study")
        content = archive.extractfile(member)
        assert content is not None  # it is a file
        yield member.name, content.read().decode()


def _comparisons(study: Study) -> list[str]:
    """The folders in which a study compares methods."""
    return [place for place, command in study.results.items() if command == "compare"]


def _measured(folder: Path) -> list[Path]:
    """The trainings of a comparison that are measured."""
    return [file.parent for file in sorted(folder.glob(f"*/{_RESULTS}")) if (file.parent / _CONFIG).is_file()]


def _data_of(out: Path) -> str | None:
    """The data of a run that was begun."""
    data: str | None = json.loads((out / STATE).read_text(encoding="utf-8"))["data"]
    return data


def _marks(study: Study, paper: Path, root: Path, data: str | None) -> dict[str, str]:
    """What an archive has in place of the folders and of the data of a machine."""
    marks = {"<root>": str(root), "<paper>": str(paper)}
    return marks if data is None or data in study.kinds() else {"<data>": data} | marks


def _replaced(text: str, parts: Mapping[str, str]) -> str:
    for old in sorted(parts, key=len, reverse=True):  # a folder may lie in another
        text = text.replace(old, parts[old])
    return text


def _require_same_data(training: Path) -> None:
    """Refuse data that are not those of a training."""
    data = from_mapping(DataConfig, read_yaml(training / RECIPE)["data"], "data")
    require_same_data(data_facts(data.load()), training, str(asdict(data)["path"] or data.source))
