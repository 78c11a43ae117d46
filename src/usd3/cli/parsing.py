"""From the words of a command line and the files it names to a dataclass of options.

jsonargparse does the parsing. It may read plain data alone: no file and no option can make it import a class.
"""

import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml  # type: ignore[import-untyped]
from jsonargparse import (  # type: ignore[attr-defined]
    ActionConfigFile,
    ArgumentError,
    ArgumentParser,
    get_loader,
    set_loader,
    set_parsing_settings,
)

from usd3._internal.yaml_json import require_small
from usd3.cli.commands import Command
from usd3.cli.errors import explained
from usd3.recipes import list_recipes, require_sections

__all__ = ["ArgumentError", "describe", "new_parser", "parse", "value_of"]

_PLAIN_DATA = "usd3"  # our own mode of the parser


def new_parser(name: str, command: Command) -> ArgumentParser:
    """The parser of the options of a command."""
    _read_plain_data_alone()
    parser = ArgumentParser(
        parser_mode=_PLAIN_DATA,
        prog=f"usd3 {name}",
        usage=" ".join(filter(None, ["usd3", name, command.words, "[--option value ...]"])),
        description=_full_description(command),
        epilog=f"Example: {command.example}",
        exit_on_error=False,
        allow_abbrev=False,
    )
    if command.recipe is not None:
        parser.add_argument("--config", action=ActionConfigFile, help="a recipe, the same as a word without dashes")
    elif command.can_resume:
        parser.add_argument("--config", action=ActionConfigFile, help="a YAML file of options, such as that of a run")
    parser.add_class_arguments(command.options)
    return parser


def describe(name: str, command: Command) -> str:
    """A line about a command, for the overview."""
    return f"{command.summary} {_recipes()}" if name == "train" else command.summary


def _full_description(command: Command) -> str:
    """The docstring of a command's options up to the list of options."""
    text = " ".join(str(command.options.__doc__).partition("Args:")[0].split())
    return text if command.recipe is None else f"{text} {_recipes()}"


def _recipes() -> str:
    return f"Recipes: {', '.join(list_recipes())}."


def parse(parser: ArgumentParser, arguments: list[str], options_class: type[Any]) -> Any:
    """The options in `arguments`, and in the files that these name, as an `options_class`."""
    for file in _config_files(arguments):
        require_sections(file)
    try:
        plain = _with_switches_off(_with_absolute_paths(arguments, options_class), options_class)
        values = parser.parse_args(plain)
    except (ArgumentError, ImportError) as error:
        raise ArgumentError(None, explained(str(error), parser._option_string_actions)) from None
    return _as_dataclass(options_class, values)


def value_of(option: str, arguments: list[str]) -> str | None:
    """The value of an option, given as `--name value` or `--name=value`. The last one counts. None: it is not given."""
    value = None
    for i, argument in enumerate(arguments):
        if argument == option and i + 1 < len(arguments):
            value = arguments[i + 1]
        if argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
    return value


def _read_plain_data_alone() -> None:
    """Make the parser read files and options as plain, small YAML, and import no class that they name."""
    set_parsing_settings(import_path_denylist=["*"])

    def load(text: str) -> Any:
        require_small(text)
        return get_loader("yaml")(text)

    set_loader(_PLAIN_DATA, load, (yaml.YAMLError,))


def _config_files(arguments: list[str]) -> list[Path]:
    """The existing files that the options --config name."""
    names = [
        word.partition("=")[2] if word.startswith("--config=") else word if before == "--config" else ""
        for before, word in zip(["", *arguments], arguments)
    ]
    return [Path(name) for name in names if os.path.isfile(name)]


def _with_absolute_paths(arguments: list[str], options_class: Any) -> list[str]:
    """The arguments with absolute paths where a file holds a section, as in `--model mine.yaml`.

    The parser would take `mine.yaml` for the name of a class.
    """
    changed = []
    for before, word in zip(["", *arguments], arguments):
        option, equals, value = word.partition("=") if word.startswith("--") else (before, "", word)
        names_section = os.path.isfile(value) and _is_section(option, options_class)
        changed.append(f"{option}=" * bool(equals) + os.path.abspath(value) if names_section else word)
    return changed


def _with_switches_off(arguments: list[str], options_class: Any) -> list[str]:
    """The arguments with `--name=false` for `--no-name`, where `name` is an option that is true or false."""
    switches = {
        f"--no-{name.replace('_', '-')}": name for name, hint in get_type_hints(options_class).items() if hint is bool
    }
    return [f"--{switches[word]}=false" if word in switches else word for word in arguments]


def _is_section(option: str, options_class: Any) -> bool:
    """Whether an option, such as --evaluation.images, has options of its own."""
    for name in option.removeprefix("--").split("."):
        options_class = get_type_hints(options_class).get(name) if is_dataclass(options_class) else None
    return is_dataclass(options_class)


def _as_dataclass(annotation: Any, values: Any) -> Any:
    """Parsed values as the dataclass `annotation`, with the dataclasses inside it; other values stay plain data."""
    if not is_dataclass(annotation):
        return values
    hints = get_type_hints(annotation)
    parts = {field.name: _as_dataclass(hints[field.name], values[field.name]) for field in fields(annotation)}
    return annotation(**parts)  # type: ignore[operator]
