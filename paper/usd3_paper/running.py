"""`usd3 paper run`: run one study or all, and write their results and tables."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3._internal.progress import say
from usd3.cli.paper import PaperOptions
from usd3_paper.estimate import Part, estimate
from usd3_paper.processes import Deadline, typed
from usd3_paper.results import collect
from usd3_paper.state import done_in, is_done
from usd3_paper.study import Settings, Study
from usd3_paper.tables import PaperTable
from usd3_paper.trainings import archive_of, unpack

__all__ = ["RESULTS", "as_text", "filled", "run_all", "run_one", "write"]

RESULTS = "results.json"


def run_one(
    options: PaperOptions, chosen: Sequence[PaperTable], study: Study, folder: Path, root: Path, deadline: Deadline
) -> None:
    """Measure what is missing, write the results and all tables of the study, and print the chosen tables.

    A run that fails or is interrupted does the same with the results it has.
    """
    for option in ("data", "steps", "trainings", "budget", "limit", "inception"):
        value = getattr(options, option)
        fits = value is None or study.uses(folder, option)
        require(fits, option, value, f"null for {options.name}, which has no use for it")
    settings = _settings(options, study.whole_name(options.data))
    study.require_data(options.data)
    _require_fitting(options, chosen, study, folder)
    if options.dry_run:
        needed = [Study.read(folder, name) for name in study.needs if not is_done(root / name)]
        plan = [(each, settings, "") for each in (*needed, study)]
        _say_plan(plan, folder, root, options.price, with_commands=True)
        return
    if options.kept:
        _unpack(study, settings, folder, root)
    _measure(study, settings, chosen, folder, root, deadline)


def run_all(options: PaperOptions, folder: Path, root: Path, deadline: Deadline) -> None:
    """Say how long all studies take, and run those that have their data. One that fails does not end the others."""
    given = _data_by_kind(options.data, folder)
    plan = []
    for study in _in_order(folder):
        kind = next((kind for kind in study.data if kind in given), None)
        missing = bool(study.data) and kind is None
        data = given[kind] if kind is not None else study.placeholder() if study.data else None
        remark = f"needs --data {'=... or '.join(study.kinds())}=..." if missing else ""
        plan.append((study, _settings(options, study.whole_name(data)), remark))
        if not missing:
            study.require_data(data)
    runnable = [part for part in plan if not part[-1]]
    _say_plan(plan if options.dry_run else runnable, folder, root, options.price, with_commands=options.dry_run)
    if options.dry_run:
        return
    failed = {}
    for study, settings, _ in runnable:
        tables = [table for table in PaperTable.all(folder) if table.study == study.name]
        if tables:  # one without tables is run by those that need it
            try:
                if options.kept and archive_of(study, folder).is_file():
                    _unpack(study, settings, folder, root)
                _measure(study, settings, tables, folder, root, deadline)
            except (ChildProcessError, FileNotFoundError, ValueError) as error:
                failed[study.name] = str(error)
                say(f"{study.name} failed: {error}")
    left_out = [study.name for study, _, missing_data in plan if missing_data]
    if left_out:
        print(f"left out, as their data are missing: {', '.join(left_out)}")
    if failed:
        raise ChildProcessError(f"{len(failed)} of the studies failed: {', '.join(failed)}; the same command goes on")


def _unpack(study: Study, settings: Settings, folder: Path, root: Path) -> None:
    """Begin a run with the trainings that were kept, unless it has begun."""
    names = unpack(study, folder, root, settings)
    if names is None:
        say(f"{study.name} has begun in {root / study.name}: it goes on, and takes nothing more of what is kept")
    else:
        say(f"{study.name} begins with kept trainings: {', '.join(names)}")


def _settings(options: PaperOptions, data: str | None) -> Settings:
    """The options that change what a study does."""
    names = ("budget", "limit", "jobs", "inception", "steps", "trainings")
    return Settings(data, **{name: getattr(options, name) for name in names})


def _data_by_kind(given: str | None, folder: Path) -> dict[str, str]:
    """What --data says for all studies: kinds with their files, as in "pop909=FILE,cifar10=FOLDER", or words."""
    known = list(dict.fromkeys(kind for study in _in_order(folder) for kind in study.kinds()))
    parts = [part.partition("=") for part in (given or "").split(",") if part]
    for kind, _, _ in parts:
        require(kind in known, "data", given, f"kinds with their files, as in KIND=FILE; kinds are {', '.join(known)}")
    return {kind: path if equals else kind for kind, equals, path in parts}


def _in_order(folder: Path) -> list[Study]:
    """All studies: those that others need before these, and else as the tables stand in the paper, figures last."""
    tables = sorted(PaperTable.all(folder), key=lambda table: table.place.startswith("Figure"))
    names: dict[str, None] = {}
    for table in tables:
        for name in (*Study.read(folder, table.study).needs, table.study):
            names.setdefault(name)
    return [Study.read(folder, name) for name in names]


def _say_plan(
    plan: Sequence[tuple[Study, Settings, str]], folder: Path, root: Path, price: float | None, with_commands: bool
) -> None:
    """Print an estimate of what is left of the studies, and its commands."""
    parts = []
    for study, settings, remark in plan:
        kind = study.kind(settings.data) or "any"
        objects = study.objects.get(kind, {})
        parts.append(Part(study.name, study.left(folder, root, settings), done_in(root / study.name), objects, remark))
    print(estimate(parts, root, price), flush=True)
    for part in parts if with_commands else ():
        print(f"# {part.study}")
        print("\n".join(typed(command) for command in part.left), end="\n\n")


def _measure(
    study: Study, settings: Settings, chosen: Sequence[PaperTable], folder: Path, root: Path, deadline: Deadline
) -> None:
    """Run a study, write its results and tables, and print the chosen ones; then raise what ended it, if it failed."""
    out = root / study.name
    ended: BaseException | None
    try:
        ended = study.run(folder, root, settings, deadline)
    except (ChildProcessError, KeyboardInterrupt) as error:
        ended = error
    commands = [command for name in study.needs for command in done_in(root / name)]
    commands += study.commands(folder, root, settings)
    replaced = {str(root): "runs/paper", str(folder): "paper"}
    for path in filter(None, (settings.data, settings.inception)):
        replaced[os.path.abspath(path)] = Path(path).name
    results = collect(study, out, settings, commands, replaced)
    if results is None:
        raise ended or FileNotFoundError(f"{out}: expected results, but its commands wrote none")
    write_whole(out / RESULTS, json.dumps(results, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    pictures = [name for name in study.pictures if (out / name).is_file()]
    tables = filled(folder, study, results)
    written = [file for table in tables for file in write(table, results, out / table.name, pictures)]
    try:
        print(as_text(chosen, results))
    finally:
        print(f"{', '.join([RESULTS, *written, *pictures])} in {out}")
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


def as_text(tables: Sequence[PaperTable], results: dict[str, Any]) -> str:
    """The tables that have numbers, for a terminal; refuses results without a number for any."""
    filled = [table.as_text(results) for table in tables if table.has_numbers(results)]
    if not filled:
        titles = dict.fromkeys(title for table in tables for title in table.columns.values())
        raise ValueError(f"{results['about']}: expected data that give {', '.join(titles)}")
    return "\n".join(filled)


def filled(folder: Path, study: Study, results: dict[str, Any]) -> list[PaperTable]:
    """The tables of a study that have numbers."""
    return [table for table in PaperTable.all(folder) if table.study == study.name and table.has_numbers(results)]


def write(table: PaperTable, results: dict[str, Any], stem: Path, pictures: Sequence[str]) -> list[str]:
    """Write all formats of a table to `stem` with their endings; the names of the files."""
    files = table.files(results, pictures)
    for ending, text in files.items():
        write_whole(stem.with_name(stem.name + ending), text)
    return [f"{stem.name}{ending}" for ending in files]
