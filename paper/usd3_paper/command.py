"""What `usd3 paper` does: list, show, run and publish the tables of the paper."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.files import write_whole, written_whole
from usd3._internal.messages import suggestion
from usd3._internal.progress import say
from usd3._internal.tables import Table
from usd3.cli.paper import PaperOptions
from usd3_paper.results import collect
from usd3_paper.study import Settings, Study, done_in
from usd3_paper.tables import PaperTable

__all__ = ["paper", "published_pictures"]

OURS = Path(__file__).parents[1]  # the folder paper/ of the checkout
_RESULTS = "results.json"


def paper(options: PaperOptions) -> None:
    """Do what the option `action` says."""
    folder, root = _paper_folder(options.paper), Path(options.out).absolute()
    if options.action == "list":
        require(options.name is None, "name", options.name, "none for list")
        print(_overview(folder))
        return
    tables = _named(folder, options.name)
    study = Study.read(folder, tables[0].study)
    command = f"usd3 paper run {options.name}" + (" --data DATA" if study.data else "")
    if options.action == "show":
        _show(tables, study, folder, root, command)
    elif options.action == "publish":
        _publish(study, folder, root, command)
    else:
        _run(options, tables, study, folder, root)


def _paper_folder(named: str | None) -> Path:
    """The folder with the tables and studies."""
    folder = OURS if named is None else Path(named)
    if not (folder / "studies").is_dir():
        raise FileNotFoundError(f"{folder}: expected the folder paper/ of a checkout (--paper says where it is)")
    return folder.absolute()


def _named(folder: Path, name: str | None) -> list[PaperTable]:
    """The table of that name, or all tables of the study of that name."""
    tables = PaperTable.all(folder)
    names = ", ".join(table.name for table in tables)
    require(name is not None, "name", None, f"that of a table or figure: {names}")
    chosen = [table for table in tables if table.name == name] or [table for table in tables if table.study == name]
    words = [word for table in tables for word in (table.name, table.study)]
    require(bool(chosen), "name", name, f"one of {names}, or the study of some{suggestion(str(name), words)}")
    return chosen


# ---- list and show ------------------------------------------------------------------------------------------------


def _overview(folder: Path) -> str:
    """All tables with their studies and results, and the data that each study needs."""
    tables = PaperTable.all(folder)
    studies = {table.study: Study.read(folder, table.study) for table in tables}
    rows = []
    for table in tables:
        budget = studies[table.study].budget
        usual = "-" if budget is None else f"{budget:g}"
        rows.append([table.name, table.place, table.title, table.study, usual, _kept_results(table, folder)])
    head = ["NAME", "IN THE PAPER", "ABOUT", "STUDY", "USUAL MINUTES", "RESULTS"]
    data = [[name, study.data.get("expected", "none")] for name, study in studies.items()]
    return f"{Table(head, [rows]).text()}\n\n{Table(['STUDY', 'DATA'], [data]).text()}"


def _kept_results(table: PaperTable, folder: Path) -> str:
    """Date, machine and budget of the published results, in words."""
    file = folder / "studies" / table.study / _RESULTS
    results = _read(file, "") if file.is_file() else None
    if results is None or not table.has_numbers(results):
        return "none yet"
    budget = results["budget_minutes"]
    minutes = "" if budget is None else f", {budget:g} min"
    return f"{results['date']}, {results['machine']['machine']}{minutes}"


def _show(tables: Sequence[PaperTable], study: Study, folder: Path, root: Path, command: str) -> None:
    """Print the tables with the published results, or those of a run, or with the paper's numbers alone."""
    files = [place / study.name / _RESULTS for place in (folder / "studies", root)]
    file = next(filter(Path.is_file, files), None)
    if file is not None:
        print(_as_text(tables, _read(file, command)))
        return
    data = f" (DATA: {study.data['expected']})" if study.data else ""
    printed = "\n".join(table.as_printed() for table in tables)
    print(f"{printed}\nNo results of ours yet: `{command}` gives them{data}.")


def _as_text(tables: Sequence[PaperTable], results: dict[str, Any]) -> str:
    """The tables that have numbers, for a terminal; refuses results without a number for any."""
    filled = [table.as_text(results) for table in tables if table.has_numbers(results)]
    if not filled:
        titles = dict.fromkeys(title for table in tables for title in table.columns.values())
        raise ValueError(f"{results['about']}: expected data that give {', '.join(titles)}")
    return "\n".join(filled)


def _read(file: Path, command: str) -> dict[str, Any]:
    """The results in a file; `command` would write it."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no results yet; `{command}` gives them")
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


# ---- run ----------------------------------------------------------------------------------------------------------


def _run(options: PaperOptions, chosen: Sequence[PaperTable], study: Study, folder: Path, root: Path) -> None:
    """Measure what is missing, write the results and all tables of the study, and print the chosen tables.

    A run that fails or is interrupted does the same with the results it has.
    """
    trusted = options.trust_code or folder.resolve() == OURS.resolve()
    require(trusted, "paper", folder, f"{OURS}, or trust_code: true, which runs the commands of its studies")
    for option in ("data", "budget", "limit", "inception"):
        value = getattr(options, option)
        fits = value is None or study.uses(folder, option)
        require(fits, option, value, f"null for {options.name}, which has no use for it")
    data = study.whole_name(options.data)
    _require_fitting(options, chosen, study, folder)
    settings = Settings(data, options.budget, options.limit, options.jobs, options.inception)
    out = root / study.name
    ended: BaseException | None
    try:
        ended = study.run(folder, root, settings)
    except (ChildProcessError, KeyboardInterrupt) as error:
        ended = error
    commands = [command for name in study.needs for command in done_in(root / name)]
    commands += study.commands(folder, root, settings)
    replaced = {str(root): "runs/paper", str(folder): "paper"}
    for path in filter(None, (data, options.inception)):
        replaced[os.path.abspath(path)] = Path(path).name
    results = collect(study, out, options.budget, commands, replaced)
    if results is None:
        raise ended or FileNotFoundError(f"{out}: expected results, but its commands wrote none")
    write_whole(out / _RESULTS, json.dumps(results, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    pictures = [name for name in study.pictures if (out / name).is_file()]
    tables = _filled(folder, study, results)
    written = [file for table in tables for file in _write(table, results, out / table.name, pictures)]
    try:
        print(_as_text(chosen, results))
    finally:
        print(f"{', '.join([_RESULTS, *written, *pictures])} in {out}")
    if ended is not None:
        raise ended


def _require_fitting(options: PaperOptions, chosen: Sequence[PaperTable], study: Study, folder: Path) -> None:
    """Refuse data that can fill none of the chosen tables; say which other tables of the study stay empty."""
    choosy = [table for table in PaperTable.all(folder) if table.study == study.name and table.data]
    kind = study.kind(options.data) if choosy else None
    empty = [table for table in choosy if kind not in table.data]
    expected = f"other data for {options.name}, which {kind} cannot fill: {study.data.get('expected')}"
    require(any(table not in empty for table in chosen), "data", options.data, expected)
    for table in empty:
        say(f"without {table.place}, {table.name}, which {kind} cannot fill")


def _filled(folder: Path, study: Study, results: dict[str, Any]) -> list[PaperTable]:
    """The tables of a study that have numbers."""
    return [table for table in PaperTable.all(folder) if table.study == study.name and table.has_numbers(results)]


def _write(table: PaperTable, results: dict[str, Any], stem: Path, pictures: Sequence[str]) -> list[str]:
    """Write all formats of a table to `stem` with their endings; the names of the files."""
    files = table.files(results, pictures)
    for ending, text in files.items():
        write_whole(stem.with_name(stem.name + ending), text)
    return [f"{stem.name}{ending}" for ending in files]


# ---- publish ------------------------------------------------------------------------------------------------------


def _publish(study: Study, folder: Path, root: Path, command: str) -> None:
    """Copy results, pictures and files of a run into the folder of the tables, and write its tables there."""
    results = _read(root / study.name / _RESULTS, command)
    files = [*study.pictures, *study.files]
    for name in files:
        if not (root / study.name / name).is_file():
            raise FileNotFoundError(f"{root / study.name / name}: no such file; `{command}` writes it")
    published = folder / "studies" / study.name
    for name in [_RESULTS, *files]:
        with written_whole(published / Path(name).name) as temporary:
            shutil.copyfile(root / study.name / name, temporary)
    lines = []
    for table in _filled(folder, study, results):
        written = _write(table, results, folder / table.name / "table", published_pictures(study))
        lines.append(f"{', '.join(written)} in {folder / table.name}")
    print("\n".join(lines))


def published_pictures(study: Study) -> list[str]:
    """The paths of a study's published pictures, as seen from the folder of a table."""
    return [f"../studies/{study.name}/{Path(name).name}" for name in study.pictures]
