"""usd3 paper: the tables of the paper, run again, with our numbers beside the published ones."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import usd3
from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3._internal.files import write_whole, written_whole
from usd3._internal.messages import suggestion
from usd3._internal.progress import say
from usd3._internal.tables import aligned
from usd3.paper import Study, Table, collect
from usd3.paper.study import Settings, done_in

__all__ = ["PaperOptions", "paper", "published_pictures"]

_RESULTS = "results.json"
_OURS = Path(usd3.__file__).parents[2] / "paper"  # where this is a checkout


@dataclass
class PaperOptions:
    """Run what gives a table or figure of the paper, and show our numbers beside the published ones.

    `usd3 paper list` names them, `usd3 paper show NAME` prints one with the results that are kept in the folder paper/,
    or else with those of a run, `usd3 paper run NAME` measures it anew, into a folder of its own. The same command goes
    on where it stopped; until then the table has the rows that are measured.

    Args:
        action: "list", "show", "run", or "publish", which takes what a run gave into the folder paper/.
        name: of the table or figure; or, where no table has it, that of a study, for all its tables.
        data: file or folder of the data, or a word that the table knows, such as bach; null: where it needs none.
        budget: minutes of each training; null: as the study says.
        limit: measure with so many held-out objects or images; null: as the study says.
        jobs: methods to train or measure side by side.
        inception: file of the weights of the Inception network, for IS and FID; null: without these.
        out: folder of all runs, a folder in it for each study.
        paper: the folder paper/ of a checkout; null: that of this one, or of the current folder.
        trust_code: allow the studies of another folder paper/ than ours to be run: a study is a list of commands, also
            of Python scripts.
    """

    action: Literal["list", "show", "run", "publish"] = "list"
    name: str | None = None
    data: str | None = None
    budget: float | None = None
    limit: int | None = None
    jobs: int = 1
    inception: str | None = None
    out: str = "runs/paper"
    paper: str | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        require_fields(self)
        as_count(self.jobs, "jobs", 1)
        as_count(4 if self.limit is None else self.limit, "limit", 4)
        as_number(1 if self.budget is None else self.budget, "budget", 0)


def paper(options: PaperOptions) -> None:
    """Do what is asked for."""
    folder, root = _paper_folder(options.paper), Path(options.out).absolute()
    if options.action == "list":
        require(options.name is None, "name", options.name, "none for list")
        print(_overview(folder))
        return
    asked = _asked(folder, options.name)
    study = Study.read(folder, asked[0].study)
    measure = f"usd3 paper run {options.name}" + (" --data DATA" if study.data else "")
    if options.action == "show":
        kept = [place / study.name / _RESULTS for place in (folder / "studies", root)]
        file = next(filter(Path.is_file, kept), None)
        if file is None:
            data = f" (DATA: {study.data['expected']})" if study.data else ""
            printed = "\n".join(table.as_printed() for table in asked)
            print(f"{printed}\nNo results of ours yet: `{measure}` gives them{data}.")
        else:
            print(_as_text(asked, _results(file, measure)))
    elif options.action == "publish":
        _publish(study, folder, root, measure)
    else:
        _run(options, asked, study, folder, root)


def _asked(folder: Path, name: str | None) -> list[Table]:
    """The table of that name, or all tables of the study of that name."""
    tables = Table.all(folder)
    names = ", ".join(table.name for table in tables)
    require(name is not None, "name", None, f"that of a table or figure: {names}")
    found = [table for table in tables if table.name == name] or [table for table in tables if table.study == name]
    known = [word for table in tables for word in (table.name, table.study)]
    require(bool(found), "name", name, f"one of {names}, or the study of some{suggestion(str(name), known)}")
    return found


def _run(options: PaperOptions, asked: Sequence[Table], study: Study, folder: Path, root: Path) -> None:
    """Measure what is not measured yet, and write the results and all tables of them; show those asked for.

    A run that fails or is interrupted does so with what it has until then.
    """
    trusted = options.trust_code or folder.resolve() == _OURS.resolve()
    require(trusted, "paper", folder, f"{_OURS}, or trust_code: true, which runs the commands of its studies")
    for option in ("data", "budget", "limit", "inception"):
        value = getattr(options, option)
        fits = value is None or study.uses(folder, option)
        require(fits, option, value, f"null for {options.name}, which has no use for it")
    data = study.whole_name(options.data)
    _require_fitting(options, asked, study, folder)
    settings = Settings(data, options.budget, options.limit, options.jobs, options.inception)
    own = root / study.name
    ended: BaseException | None
    try:
        ended = study.run(folder, root, settings)
    except (ChildProcessError, KeyboardInterrupt) as error:
        ended = error
    commands = [command for name in study.needs for command in done_in(root / name)]
    commands += study.commands(folder, root, settings)
    replaced = {str(root): "runs/paper", str(folder): "paper"}
    for given in filter(None, (data, options.inception)):
        replaced[os.path.abspath(given)] = Path(given).name
    results = collect(study, own, options.budget, commands, replaced)
    if results is None:
        raise ended or FileNotFoundError(f"{own}: expected results, but its commands wrote none")
    write_whole(own / _RESULTS, json.dumps(results, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    tables, pictures = _filled(folder, study, results), [name for name in study.pictures if (own / name).is_file()]
    written = [file for table in tables for file in _write(table, results, own / table.name, pictures)]
    try:
        print(_as_text(asked, results))
    finally:
        print(f"{', '.join([_RESULTS, *written, *pictures])} in {own}")
    if ended is not None:
        raise ended


def _require_fitting(options: PaperOptions, asked: Sequence[Table], study: Study, folder: Path) -> None:
    """Refuse data that cannot fill any of the tables that are asked for; say which others they do not fill."""
    choosy = [table for table in Table.all(folder) if table.study == study.name and table.data]
    kind = study.kind(options.data) if choosy else None
    empty = [table for table in choosy if kind not in table.data]
    expected = f"other data for {options.name}, which {kind} cannot fill: {study.data.get('expected')}"
    require(any(table not in empty for table in asked), "data", options.data, expected)
    for table in empty:
        say(f"without {table.place}, {table.name}, which {kind} cannot fill")


def _paper_folder(named: str | None) -> Path:
    """The folder with the studies and tables."""
    here = [_OURS, Path("paper")] if named is None else [Path(named)]
    found = next((folder.absolute() for folder in here if (folder / "studies").is_dir()), None)
    if found is None:
        raise FileNotFoundError(f"{here[-1]}: expected the folder paper/ of a checkout (--paper says where it is)")
    return found


def _overview(folder: Path) -> str:
    """All tables, what is behind them, and whether there are results."""
    tables = Table.all(folder)
    lines = [["NAME", "IN THE PAPER", "ABOUT", "STUDY", "USUAL MINUTES", "RESULTS"]]
    for table in tables:
        study, file = Study.read(folder, table.study), folder / "studies" / table.study / _RESULTS
        results = _results(file, "") if file.is_file() else None
        there = results is not None and table.has_numbers(results)
        spent = "" if results is None or results["budget_minutes"] is None else f", {results['budget_minutes']:g} min"
        kept = f"{results['date']}, {results['machine']['machine']}{spent}" if results and there else "none yet"
        budget = "-" if study.budget is None else f"{study.budget:g}"
        lines.append([table.name, table.place, table.title, study.name, budget, kept])
    needs = {table.study: Study.read(folder, table.study) for table in tables}
    told = [["STUDY", "DATA"]] + [[name, study.data.get("expected", "none")] for name, study in needs.items()]
    return "\n".join([*aligned(lines), "", *aligned(told)])


def _results(file: Path, command: str) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no results yet; `{command}` gives them")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _as_text(tables: Sequence[Table], results: dict[str, Any]) -> str:
    """To read in a terminal, those that have numbers; refuses results that have nothing for any."""
    filled = [table.as_text(results) for table in tables if table.has_numbers(results)]
    if not filled:
        wanted = dict.fromkeys(title for table in tables for title in table.columns.values())
        raise ValueError(f"{results['about']}: expected data that give {', '.join(wanted)}")
    return "\n".join(filled)


def _filled(folder: Path, study: Study, results: dict[str, Any]) -> list[Table]:
    """All tables of a study that have numbers."""
    return [table for table in Table.all(folder) if table.study == study.name and table.has_numbers(results)]


def _write(table: Table, results: dict[str, Any], name: Path, pictures: Sequence[str]) -> list[str]:
    files = table.files(results, pictures)
    for ending, text in files.items():
        write_whole(name.with_name(name.name + ending), text)
    return [f"{name.name}{ending}" for ending in files]


def _publish(study: Study, folder: Path, root: Path, command: str) -> None:
    """Take results, pictures and files of a study into the folder of the tables, and write all tables of it."""
    results = _results(root / study.name / _RESULTS, command)
    files = [*study.pictures, *study.files]
    for name in files:
        if not (root / study.name / name).is_file():
            raise FileNotFoundError(f"{root / study.name / name}: no such file; `{command}` writes it")
    kept = folder / "studies" / study.name
    for name in [_RESULTS, *files]:
        with written_whole(kept / Path(name).name) as temporary:
            shutil.copyfile(root / study.name / name, temporary)
    lines = []
    for table in _filled(folder, study, results):
        written = _write(table, results, folder / table.name / "table", published_pictures(study))
        lines.append(f"{', '.join(written)} in {folder / table.name}")
    print("\n".join(lines))


def published_pictures(study: Study) -> list[str]:
    """Where the pictures of a study are kept, seen from the folder of a table."""
    return [f"../studies/{study.name}/{Path(name).name}" for name in study.pictures]
