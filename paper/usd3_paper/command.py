"""What `usd3 paper` does: list, show, run, keep and publish the tables of the paper."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.files import written_whole
from usd3._internal.messages import suggestion
from usd3._internal.tables import Table
from usd3.cli.paper import PaperOptions
from usd3_paper.processes import Deadline
from usd3_paper.running import RESULTS, as_text, filled, run_all, run_one, write
from usd3_paper.study import Study
from usd3_paper.tables import PaperTable
from usd3_paper.trainings import archive_of, keep

__all__ = ["paper", "published_pictures"]

OURS = Path(__file__).parents[1]  # the folder paper/ of the checkout
ALL = "all"  # in place of the name of a table
_OF_RUN = ("data", "steps", "trainings", "budget", "stop_after", "limit", "inception", "kept", "dry_run", "price")


def paper(options: PaperOptions) -> None:
    """Do what the option `action` says."""
    folder, root = _paper_folder(options.paper), Path(os.path.abspath(options.out))
    for option in _OF_RUN if options.action != "run" else ():
        require(not getattr(options, option), option, getattr(options, option), "an option of run alone")
    if options.action == "list":
        require(options.name is None, "name", options.name, "none for list")
        print(_overview(folder))
        return
    if options.action == "run":
        trusted = options.trust_code or folder.resolve() == OURS.resolve()
        require(trusted, "paper", folder, f"{OURS}, or trust_code: true, which runs the commands of its studies")
    has_estimate = options.dry_run or options.name == ALL
    require(has_estimate or options.price is None, "price", options.price, "null without an estimate (--dry_run true)")
    deadline = Deadline(options.stop_after)
    if options.action == "run" and options.name == ALL:
        run_all(options, folder, root, deadline)
        return
    tables = _named(folder, options.name)
    study = Study.read(folder, tables[0].study)
    command = f"usd3 paper run {options.name}" + (" --data DATA" if study.data else "")
    if options.action == "show":
        _show(tables, study, folder, root, command)
    elif options.action == "publish":
        _publish(study, folder, root, command)
    elif options.action == "keep":
        names = keep(study, folder, root)
        print(f"{', '.join(names)} in {archive_of(study, folder)}")
    else:
        run_one(options, tables, study, folder, root, deadline)


def _paper_folder(named: str | None) -> Path:
    """The folder with the tables and studies."""
    folder = OURS if named is None else Path(named)
    if not (folder / "studies").is_dir():
        raise FileNotFoundError(f"{folder}: expected the folder paper/ of a checkout (--paper says where it is)")
    return Path(os.path.abspath(folder))


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
        steps = studies[table.study].steps
        usual = "-" if steps is None else f"{steps:,}"
        rows.append([table.name, table.place, table.title, table.study, usual, _kept_results(table, folder)])
    head = ["NAME", "IN THE PAPER", "ABOUT", "STUDY", "STEPS", "RESULTS"]
    data = [[name, study.data.get("expected", "none")] for name, study in studies.items()]
    return f"{Table(head, [rows]).text()}\n\n{Table(['STUDY', 'DATA'], [data]).text()}"


def _kept_results(table: PaperTable, folder: Path) -> str:
    """Date, machine, and steps or minutes of the published results, in words."""
    file = folder / "studies" / table.study / RESULTS
    results = _read(file, "") if file.is_file() else None
    if results is None or not table.has_numbers(results):
        return "none yet"
    budget = results["budget_minutes"]
    amount = "" if budget is None else f", {budget:g} min"
    if results.get("budget_steps") is not None:
        amount = f", {results['budget_steps']:,} steps"
    return f"{results['date']}, {results['machine']['machine']}{amount}"


def _show(tables: Sequence[PaperTable], study: Study, folder: Path, root: Path, command: str) -> None:
    """Print the tables with the published results, or those of a run, or with the paper's numbers alone."""
    files = [place / study.name / RESULTS for place in (folder / "studies", root)]
    file = next(filter(Path.is_file, files), None)
    if file is not None:
        print(as_text(tables, _read(file, command)))
        return
    data = f" (DATA: {study.data['expected']})" if study.data else ""
    printed = "\n".join(table.as_printed() for table in tables)
    print(f"{printed}\nNo results of ours yet: `{command}` gives them{data}.")


def _read(file: Path, command: str) -> dict[str, Any]:
    """The results in a file; `command` would write it."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no results yet; `{command}` gives them")
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


# ---- publish ------------------------------------------------------------------------------------------------------


def _publish(study: Study, folder: Path, root: Path, command: str) -> None:
    """Copy results, pictures and files of a run into the folder of the tables, and write its tables there."""
    results = _read(root / study.name / RESULTS, command)
    files = [*study.pictures, *study.files]
    for name in files:
        if not (root / study.name / name).is_file():
            raise FileNotFoundError(f"{root / study.name / name}: no such file; `{command}` writes it")
    published = folder / "studies" / study.name
    for name in [RESULTS, *files]:
        with written_whole(published / Path(name).name) as temporary:
            shutil.copyfile(root / study.name / name, temporary)
    lines = []
    for table in filled(folder, study, results):
        written = write(table, results, folder / table.name / "table", published_pictures(study))
        lines.append(f"{', '.join(written)} in {folder / table.name}")
    print("\n".join(lines))


def published_pictures(study: Study) -> list[str]:
    """The paths of a study's published pictures, as seen from the folder of a table."""
    return [f"../studies/{study.name}/{Path(name).name}" for name in study.pictures]
