"""The command line: `usd3 COMMAND`, with the commands of `COMMANDS`."""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
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

from usd3._internal.interrupts import exit_on_interrupt, raise_on_interrupt
from usd3._internal.messages import suggestion
from usd3._internal.threads import WAIT_SETTINGS
from usd3._internal.yaml_json import read_yaml, require_small
from usd3._version import __version__
from usd3.cli.errors import explained
from usd3.cli.output import show_plainly
from usd3.recipes import find_recipe, list_recipes, require_sections

__all__ = ["main"]


def _found(place: str) -> Any:
    """`module.name` of usd3.cli. What a command needs is imported when it runs: all of it takes seconds."""
    module, _, name = place.partition(".")
    return getattr(importlib.import_module(f"usd3.cli.{module}"), name)


def _later(place: str) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        command = _found(place)
        raise_on_interrupt()
        return command(*arguments)

    return run


@dataclass(frozen=True)
class Command:
    """A subcommand: what it is for, where its options are, what it does, and what its words without dashes mean.

    They are recipes where it has a `recipe`, the one it takes without any; else the options `subjects`, in their order.
    `about` is the first line of what the options say about themselves.
    """

    about: str
    options_at: str
    run: Callable[..., Any]
    words: str
    example: str
    subjects: tuple[str, ...] = ("model",)
    recipe: str | None = None

    @property
    def options(self) -> type[Any]:
        """Its options, a dataclass."""
        return _found(self.options_at)  # type: ignore[no-any-return]

    @property
    def resumes(self) -> bool:
        """Whether it goes on with a run, whose own recipe then holds."""
        return any(field.name == "resume" for field in fields(self.options))

    @property
    def takes_methods(self) -> bool:
        """Whether it takes several methods, each with recipes of its own."""
        return any(field.name == "methods" for field in fields(self.options))


COMMANDS = {
    "train": Command(
        "Train a model on a recipe.",
        "train.TrainOptions",
        _later("train.train"),
        "[RECIPE ...]",
        "usd3 train bach --model.dim 256 --training.steps 5000",
        recipe="bach",
    ),
    "sample": Command(
        "Draw from a trained model.",
        "sample.SampleOptions",
        _later("sample.sample"),
        "MODEL",
        "usd3 sample runs/bach --prompt test --prefix 32 --animate true",
    ),
    "evaluate": Command(
        "Measure a trained model on held-out data: n-grams, diversity, likelihood.",
        "evaluate.EvaluateOptions",
        _later("evaluate.run_evaluation"),
        "MODEL",
        "usd3 evaluate runs/bach --limit 100",
    ),
    "compare": Command(
        "Train several methods under one budget, measure all in the same way, and write one table.",
        "compare.CompareOptions",
        _later("compare.compare"),
        "[RECIPE ...]",
        'usd3 compare bach-small --methods "usd3 star:usd3-star+discrete runs/bach" --training.minutes 10',
        recipe="bach-small",
    ),
    "info": Command(
        "Describe this installation, a recipe, a run or a saved model.",
        "info.InfoOptions",
        _later("info.info"),
        "[RECIPE, MODEL or FOLDER]",
        "usd3 info bach",
        subjects=("what",),
    ),
    "export": Command(
        "Write a small folder of a trained model to share: rounded weights and a model card.",
        "export.ExportOptions",
        _later("export.export"),
        "RUN",
        "usd3 export runs/bach --out bach --metrics runs/bach/evaluation.json",
        subjects=("run",),
    ),
    "bench": Command(
        "Measure time and memory of the loss and of a sampling step on this machine.",
        "bench.BenchOptions",
        _later("bench.bench"),
        "[loss | sampling | scaling | all]",
        'usd3 bench loss --sizes "64,256,129 32,256,8192" --out runs/bench',
        subjects=("table",),
    ),
    "paper": Command(
        "Run what gives a table or figure of the paper, and show our numbers beside the published ones.",
        "paper.PaperOptions",
        _later("paper.paper"),
        "list | show NAME | run NAME | publish NAME",
        "usd3 paper run music --data pop909_melody_256.npz --budget 4 --jobs 4",
        subjects=("action", "name"),
    ),
    "cost": Command(
        "Measure what training and sampling cost for several methods, in one process, and write one table.",
        "cost.CostOptions",
        _later("cost.cost"),
        "[RECIPE ...]",
        'usd3 cost vqcifar10 paper-image --methods "usd3:usd3+discrete d3pm" --shape 8,8 --num_classes 512',
        recipe="bach-small",
    ),
    "classifier": Command(
        "Train a classifier of images, whose features serve metrics and the perceptual loss.",
        "classifier.ClassifierOptions",
        _later("classifier.classifier"),
        "",
        "usd3 classifier --images cifar-10-batches-py --run runs/classifier",
        subjects=(),
    ),
    "vqgan": Command(
        "Train a VQGAN, which makes tokens of images and images of tokens.",
        "vqgan.VQGANOptions",
        _later("vqgan.vqgan"),
        "",
        "usd3 vqgan --images cifar-10-batches-py --perceptual runs/classifier --run runs/vqgan",
        subjects=(),
    ),
    "encode": Command(
        "Turn images into a file of tokens, to train a model on.",
        "encode.EncodeOptions",
        _later("encode.encode"),
        "VQGAN",
        "usd3 encode runs/vqgan --images cifar-10-batches-py --out cifar10.npz",
        subjects=("vqgan",),
    ),
    "decode": Command(
        "Turn tokens back into images.",
        "encode.DecodeOptions",
        _later("encode.decode"),
        "VQGAN",
        "usd3 decode runs/vqgan --tokens samples.npz --out samples",
        subjects=("vqgan",),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status. Errors are one line on stderr."""
    _wait_asleep()
    show_plainly()
    if arguments is None:
        exit_on_interrupt()  # until the command begins
        arguments = sys.argv[1:]
    try:
        status = _status(arguments)
        sys.stdout.flush()  # here, where it can be said that nobody reads it
        return status
    except BrokenPipeError:  # who reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _status(arguments: list[str]) -> int:
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
            warnings.showwarning = _warn  # type: ignore[assignment]
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
        print(f"usd3 {name}: error: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, ArgumentError) else 1
    return 0


def _wait_asleep() -> None:
    """Threads of torch that wait for each other sleep, unless the user said how they wait.

    By default they keep their cores busy, and a computer that does something else becomes several times slower. It has
    to be said before torch is imported.
    """
    if not any(name in os.environ for name in WAIT_SETTINGS):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def _run(name: str, arguments: list[str]) -> None:
    command = COMMANDS[name]
    words = list(arguments)
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    words, options = words[:count], words[count:]
    _read_plain_data_alone()
    parser = ArgumentParser(
        parser_mode=_PLAIN,
        prog=f"usd3 {name}",
        usage=" ".join(filter(None, ["usd3", name, command.words, "[--option value ...]"])),
        description=_description(name, whole=True),
        epilog=f"Example: {command.example}",
        exit_on_error=False,
        allow_abbrev=False,
    )
    if command.recipe is not None:
        parser.add_argument("--config", action=ActionConfigFile, help="a recipe, the same as a word without dashes")
    elif command.resumes:
        parser.add_argument("--config", action=ActionConfigFile, help="a YAML file of options, as a run has it")
    parser.add_class_arguments(command.options)
    if command.recipe is not None:
        _run_on_recipes(name, parser, words, options)
        return
    most = len(command.subjects)
    if len(words) > most:
        raise ValueError(f"{words[most]!r} is one word too many: expected {command.words or 'options alone'}")
    resumed = _value(options, "--resume") if command.resumes else None
    options = ["--config", str(_resumed(name, resumed)), *options] if resumed else options
    named = [f"--{subject}={word}" for subject, word in zip(command.subjects, words)]
    made = _made(parser, [*named, *options], command.options)
    missing = {
        "model": "the folder of a run or of a saved model, or the name of a packaged one",
        "run": "the folder of a run",
        "vqgan": "the folder of a trained VQGAN",
    }
    for subject in command.subjects:
        if subject in missing and not getattr(made, subject):
            raise ValueError(f"{subject} is missing: expected {missing[subject]}")
    command.run(made)


_PLAIN = "usd3"


def _read_plain_data_alone() -> None:
    """The parser makes nothing but plain data of files and options: it imports no class that one names."""
    set_parsing_settings(import_path_denylist=["*"])

    def load(text: str) -> Any:
        require_small(text)
        return get_loader("yaml")(text)

    set_loader(_PLAIN, load, (yaml.YAMLError,))


def _run_on_recipes(name: str, parser: ArgumentParser, words: list[str], options: list[str]) -> None:
    """Run a command whose words are recipes: one after the other, and then the options."""
    command = COMMANDS[name]

    def read(names: Sequence[str]) -> Any:
        files = [_resumed(name, resumed)] if resumed else [find_recipe(recipe) for recipe in names]
        found = _made(parser, [part for file in files for part in ("--config", str(file))] + options, command.options)
        _require_trusted(found, options)
        return found

    resumed = _value(options, "--resume") if command.resumes else None
    if resumed and words:
        raise ValueError(f"{' '.join(words)}: expected no recipe, as a run that is resumed has its own")
    words = words or [str(command.recipe)]
    made = read(words)
    command.run(made, words, *([read] if command.takes_methods else []))


def _made(parser: ArgumentParser, arguments: list[str], kind: type[Any]) -> Any:
    """The options as a dataclass."""
    for file in _files_of_options(arguments):
        require_sections(file)
    try:
        values = parser.parse_args(_naming_files(arguments, kind))
    except (ArgumentError, ImportError) as error:
        raise ArgumentError(None, explained(str(error), parser._option_string_actions)) from None
    return _as_dataclass(kind, values)


def _files_of_options(arguments: list[str]) -> list[Path]:
    """The files that are named by --config."""
    pairs = zip(["", *arguments], arguments)
    named = [
        word.partition("=")[2] if word.startswith("--config=") else word if before == "--config" else ""
        for before, word in pairs
    ]
    return [Path(name) for name in named if os.path.isfile(name)]


def _naming_files(arguments: list[str], kind: Any) -> list[str]:
    """The same with whole paths for sections in a file, as in `--model mine.yaml`, which would look like a class."""
    found = []
    for before, word in zip(["", *arguments], arguments):
        option, equals, value = word.partition("=") if word.startswith("--") else (before, "", word)
        is_file = os.path.isfile(value) and _is_section(option, kind)
        found.append(f"{option}=" * bool(equals) + os.path.abspath(value) if is_file else word)
    return found


def _is_section(option: str, kind: Any) -> bool:
    """Whether an option, as in --evaluation.images, is one that has options of its own."""
    for name in option.removeprefix("--").split("."):
        kind = get_type_hints(kind).get(name) if is_dataclass(kind) else None
    return is_dataclass(kind)


def _as_dataclass(kind: Any, values: Any) -> Any:
    """A dataclass of options and those inside it; all other values stay the plain data they are."""
    if not is_dataclass(kind):
        return values
    kinds = get_type_hints(kind)
    return kind(**{field.name: _as_dataclass(kinds[field.name], values[field.name]) for field in fields(kind)})  # type: ignore[operator]


def _require_trusted(made: Any, options: list[str]) -> None:
    """What a recipe names is imported where the user says so; what the user types needs no further word."""
    from usd3.pipeline.trust import require_trusted

    values = (_value(options, name) for name in ("--data.kind", "--model.net", "--method.name"))
    typed = {value for value in values if value is not None}
    if made.trust_code:
        if yaml.safe_load(_value(options, "--trust_code") or "") is not True:
            raise ValueError("trust_code in a file: expected it on the command line, since it is yours to say")
        return
    require_trusted(made, typed)


def _value(options: list[str], name: str) -> str | None:
    """The value of an option, given as `--name value` or `--name=value`; of several, the last, which holds."""
    found = None
    for i, option in enumerate(options):
        if option == name and i + 1 < len(options):
            found = options[i + 1]
        if option.startswith(f"{name}="):
            found = option.partition("=")[2]
    return found


def _resumed(name: str, folder: str) -> Path:
    """The recipe of a run, which must be one of this command: others have other options."""
    file = Path(folder) / "recipe.yaml"
    if not file.is_file():
        raise FileNotFoundError(f"resume = {folder}: expected the folder of a run, with its recipe.yaml")
    found = read_yaml(file)
    if isinstance(found, dict) and not _has(COMMANDS[name], found):
        of = next((f"of `usd3 {other}`" for other in COMMANDS if _has(COMMANDS[other], found)), "of another kind")
        raise ValueError(f"resume = {folder}, a run {of}: expected one of `usd3 {name}`")
    return file


def _has(command: Command, values: dict[str, Any]) -> bool:
    """Whether a command that resumes has all these options."""
    return command.resumes and values.keys() <= {field.name for field in fields(command.options)}


def _overview() -> str:
    lines = [f"  {name:10} {_description(name)}" for name in COMMANDS]
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


def _description(name: str, whole: bool = False) -> str:
    """What a command is for, in one line, or all that its options say before they are listed."""
    command = COMMANDS[name]
    first = " ".join(str(command.options.__doc__).partition("Args:")[0].split()) if whole else command.about
    listed = command.recipe is not None and (whole or name == "train")
    return f"{first} Recipes: {', '.join(list_recipes())}." if listed else first


_EXPECTED = (ArgumentError, ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError)


def _one_line(error: Exception) -> str:
    """The message in one line; one that was not foreseen with its kind, and cut short."""
    text = " ".join(str(error).split())
    if isinstance(error, _EXPECTED) and text:
        return text
    return f"{type(error).__name__}: {text[:300]} (USD3_DEBUG=1 shows where)"


def _warn(message: Warning | str, *_: Any) -> None:
    print(f"usd3: warning: {' '.join(str(message).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
