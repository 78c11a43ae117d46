"""The command line: `usd3 COMMAND`, with the commands of `usd3.cli.commands`."""

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from usd3._internal.interrupts import exit_on_interrupt
from usd3._internal.messages import suggestion
from usd3._internal.threads import WAIT_SETTINGS
from usd3._internal.yaml_json import read_yaml
from usd3._version import __version__
from usd3.cli.commands import COMMANDS, Command
from usd3.cli.errors import one_line, print_warning
from usd3.cli.output import show_plainly
from usd3.cli.parsing import ArgumentError, describe, new_parser, parse, value_of

__all__ = ["main"]

_SUBJECTS = {
    "model": "the folder of a run or of a saved model, or the name of a packaged one",
    "run": "the folder of a run",
    "vqgan": "the folder of a trained VQGAN",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status. An error is one line on stderr.

    Args:
        arguments: the words after `usd3`; None: those of this process.
    """
    _let_threads_sleep()
    show_plainly()
    if arguments is None:
        exit_on_interrupt()  # until the command begins
        arguments = sys.argv[1:]
    try:
        status = _status(arguments)
        sys.stdout.flush()  # here a closed pipe is still handled
        return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _status(arguments: list[str]) -> int:
    """Run one command and return its exit status; a closed pipe is the caller's business."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"usd3 {__version__}")
        return 0
    name = arguments[0]
    try:
        if name not in COMMANDS:
            raise ValueError(
                f"there is no command {name!r}: expected one of {', '.join(COMMANDS)}{suggestion(name, COMMANDS)}"
            )
        with warnings.catch_warnings():
            warnings.showwarning = print_warning  # type: ignore[assignment]
            _run(name, arguments[1:])
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt as stop:
        print(f"usd3 {name}: interrupted {stop}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("USD3_DEBUG"):
            raise
        print(f"usd3 {name}: error: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, ArgumentError) else 1
    return 0


def _let_threads_sleep() -> None:
    """Make torch's threads sleep while they wait for each other, unless the environment says how they wait.

    By default they keep their cores busy, and other programs on the computer become several times slower. The
    variable must be set before torch is imported.
    """
    if not any(name in os.environ for name in WAIT_SETTINGS):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def _run(name: str, arguments: list[str]) -> None:
    """Run a command: first words without dashes, then options."""
    command = COMMANDS[name]
    count = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    words, options = arguments[:count], arguments[count:]
    if command.recipe is None:
        _run_on_subjects(name, words, options)
    else:
        _run_on_recipes(name, words, options)


def _run_on_subjects(name: str, words: list[str], arguments: list[str]) -> None:
    """Run a command whose words are values of options, such as the model."""
    command = COMMANDS[name]
    parser = new_parser(name, command)
    most = len(command.subjects)
    if len(words) > most:
        raise ValueError(f"{words[most]!r} is one word too many: expected {command.words or 'options alone'}")
    resumed = value_of("--resume", arguments) if command.can_resume else None
    saved = ["--config", str(_recipe_of_run(name, resumed))] if resumed else []
    subjects = [f"--{subject}={word}" for subject, word in zip(command.subjects, words)]
    options = parse(parser, [*subjects, *saved, *arguments], command.options)
    for subject in command.subjects:
        if subject in _SUBJECTS and getattr(options, subject) == "":
            raise ValueError(f"{subject} is missing: expected {_SUBJECTS[subject]}")
    command.run(options)


def _run_on_recipes(name: str, words: list[str], arguments: list[str]) -> None:
    """Run a command whose words are recipes. Later recipes overrule earlier ones, and options overrule recipes."""
    command = COMMANDS[name]
    parser = new_parser(name, command)
    resumed = value_of("--resume", arguments) if command.can_resume else None
    if resumed and words:
        raise ValueError(f"{' '.join(words)}: expected no recipe, as a run that is resumed has its own")

    def read(recipes: Sequence[str]) -> Any:
        from usd3.cli.words import configs_of_words  # imports the kinds, and with them torch

        configs = ["--config", str(_recipe_of_run(name, resumed))] if resumed else configs_of_words(recipes, arguments)
        options = parse(parser, configs + arguments, command.options)
        _require_trusted(options, arguments)
        return options

    recipes = words or [str(command.recipe)]
    options = read(recipes)
    command.run(options, recipes, *([read] if command.takes_methods else []))


def _require_trusted(options: Any, arguments: list[str]) -> None:
    """Raise an error if a recipe names a class that is not ours, unless the user typed its name or --trust_code."""
    from usd3.pipeline.trust import require_trusted

    values = (value_of(option, arguments) for option in ("--data.kind", "--model.net", "--method.name"))
    typed = {value for value in values if value is not None}
    if options.trust_code:
        if yaml.safe_load(value_of("--trust_code", arguments) or "") is not True:
            raise ValueError("trust_code in a file: expected it on the command line, since it is yours to say")
        return
    require_trusted(options, typed)


def _recipe_of_run(name: str, folder: str) -> Path:
    """The recipe.yaml of a run folder. It must be a run of this command: other commands have other options."""
    file = Path(folder) / "recipe.yaml"
    if not file.is_file():
        raise FileNotFoundError(f"resume = {folder}: expected the folder of a run, with its recipe.yaml")
    values = read_yaml(file)
    if isinstance(values, dict) and not _has_options(COMMANDS[name], values):
        others = (f"of `usd3 {other}`" for other, command in COMMANDS.items() if _has_options(command, values))
        origin = next(others, "of another kind")
        raise ValueError(f"resume = {folder}, a run {origin}: expected one of `usd3 {name}`")
    return file


def _has_options(command: Command, values: dict[str, Any]) -> bool:
    """Whether a command can resume and has all these options."""
    return command.can_resume and values.keys() <= {field.name for field in fields(command.options)}


def _overview() -> str:
    lines = [f"  {name:10} {describe(name, command)}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usd3: generative diffusion for categorical data.",
            "",
            "usage: usd3 COMMAND [...]",
            *lines,
            "",
            "usd3 COMMAND --help explains every option; usd3 info lists the recipes.",
            "With USD3_DEBUG=1 in the environment an error shows where it arose.",
            "Begin with: usd3 sample bach, then usd3 train bach-small",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
