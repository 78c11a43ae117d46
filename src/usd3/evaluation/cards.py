"""Model cards: the README.md of a model that is shared."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]

from usd3._internal.checks import require
from usd3._version import __version__
from usd3.core.options import DiffusionConfig
from usd3.evaluation.comparison import heading, read_references, read_row
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tables import markdown_table
from usd3.kinds.registry import KindSettings
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.trust import foreign_classes

__all__ = ["Card", "measured_table", "needed_options"]

_OMITTED = (  # settings that name paths or do not change the numbers of the model
    *(setting.name for setting in fields(KindSettings)),
    "baselines",
    "batch_size",
)


@dataclass(frozen=True)
class Card:
    """The content of a model card.

    Args:
        title: title of the card.
        folder: name of the model's folder.
        config: the content of config.json.
        recipe: the content of recipe.yaml.
        parameters: number of parameters.
        dtype: number format of the stored weights.
        size: size of the file of weights in bytes.
        data_name: name of the data.
        counts: number of training and of held-out objects; None: unknown.
        split: how the held-out objects were chosen; None: unknown.
        licence: licence of the data; None: not stated.
        file: name of the file or folder of the data; None: they come with a package.
        measured: the table of `measured_table`; None: nothing was measured.
    """

    title: str
    folder: str
    config: PipelineConfig
    recipe: Mapping[str, Any]
    parameters: int
    dtype: str
    size: int
    data_name: str
    counts: tuple[int, int] | None = None
    split: str | None = None
    licence: str | None = None
    file: str | None = None
    measured: str | None = None

    def as_markdown(self) -> str:
        """The card as Markdown."""
        parts = {"Use": self._use(), "Data": self._data(), "Training": self._training(), "Measures": self.measured}
        sections = [f"## {title}\n\n{text}" for title, text in parts.items() if text is not None]
        return "\n\n".join([f"# {self.title}", self.summary(), *sections, f"## Versions\n\n{self._versions()}"]) + "\n"

    def summary(self) -> str:
        """The description of the model in one line."""
        steps, minutes = self.config.steps, self.config.minutes
        time = "" if minutes is None else f", {minutes:.1f} minutes"
        numbers = f"{self.parameters:,} parameters in {self.size / 1e6:.3g} MB ({self.dtype})"
        objects = self.config.build_kind().describe()
        return f"A model of {objects}: {numbers}, trained for {steps:,} steps{time} on {self.data_name}."

    def _use(self) -> str:
        ours = not foreign_classes(self.config)
        trust = "" if ours else " --trust_code true"
        data = " ".join(["", *needed_options(self.config)])
        examples = self.config.build_kind().sample_examples(self.config.given, self.config.prefix)
        lines = [example.partition("  # ") for example in examples]
        sh = [f"usd3 sample {self.folder}{options}{trust}{hash}{comment}" for options, hash, comment in lines]
        for name, classes in self.config.labels.items():
            sh.append(f"usd3 sample {self.folder} --where {name}={_quoted(classes[0])} --guidance 2{trust}")
        sh.append(f"usd3 evaluate {self.folder}{data}{trust}")
        python = [
            "import usd3",
            "",
            f'pipeline = usd3.Pipeline.from_pretrained("{self.folder}"{"" if ours else ", trust_code=True"})',
            f"x = pipeline.sample(4)  # tokens {(4, *self.config.shape)}",
        ]
        return "\n\n".join([_block("sh", "\n".join(sh)), _block("python", "\n".join(python))])

    def _data(self) -> str:
        counts = "not known" if self.counts is None else "{:,} to train on, {:,} held out".format(*self.counts)
        rows = {
            "name": self.data_name,
            "source": self.config.data.source,
            "file or folder": self.file,
            "sequences": counts,
            "split": self.split,
            "licence": self.licence or "not stated",
            **{name: ", ".join(classes) for name, classes in self.config.labels.items()},
        }
        return "\n".join(f"- {name}: {value}" for name, value in rows.items() if value is not None)

    def _training(self) -> str:
        beside = "" if self.file is None else f" and {self.file} beside it"
        command = _block("sh", "usd3 train recipe.yaml")
        recipe = _block("yaml", yaml.safe_dump(dict(self.recipe), sort_keys=False).rstrip())
        return f"With this recipe as recipe.yaml{beside}:\n\n{command}\n\n{recipe}"

    def _versions(self) -> str:
        exported = f"exported with usd3 {__version__}, torch {torch.__version__}"
        return f"Trained with usd3 {self.config.usd3_version}; {exported}."


def _quoted(word: str) -> str:
    """A word as the command line takes it."""
    return word if re.fullmatch(r"[\w.-]+", word) else f"'\"{word}\"'"


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def needed_options(config: PipelineConfig) -> list[str]:
    """Options of `usd3 evaluate` that say where the data are."""
    kind = config.build_kind()
    return [*(["--data_path PATH"] if kind.needs_path(config.data) else []), *kind.evaluate_options]


def measured_table(results: Any, model: str, file: Path, trained: Mapping[str, Any], needed: Sequence[str]) -> str:
    """A table of results, and the command that repeats the evaluation.

    Args:
        results: what `usd3 evaluate` wrote.
        model: name of the model's folder, for the command.
        file: the file of the results, for error messages.
        trained: number of parameters and of training steps; results of another model raise an error.
        needed: options that the command needs on another machine.
    """
    try:
        about = {key: results["trained"][key] for key in trained}
        compared = results.get("compared_with")
        if compared is not None:
            results = results | _without_places(compared, results.get("title"))
        table = markdown_table([read_row("model", results), *read_references(results)])
        title, version, options = heading(results), results["torch"], _options(results["settings"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"metrics = {file}: expected what `usd3 evaluate` wrote ({error!r})") from None
    for key, value in trained.items():
        require(about[key] == value, f"{key} in {file}", about[key], f"{value}, as the model has")
    return f"{title}; by `{' '.join(['usd3 evaluate', model, *needed, *options])}` with torch {version}.\n\n{table}"


def _without_places(compared_with: Mapping[str, Any], title: str | None) -> dict[str, Any]:
    """`compared_with` and the title of results, with the names of folders instead of their paths."""
    names = {key: Path(value).name for key, value in compared_with.items() if isinstance(value, str)}
    for key, name in names.items():
        title = None if title is None else title.replace(compared_with[key], name)
    return {"compared_with": {**compared_with, **names}, "title": title}


def _options(settings: Mapping[str, Any]) -> list[str]:
    """The options of `usd3 evaluate` that differ from their defaults."""
    defaults = asdict(EvaluationSettings(steps=DiffusionConfig().usual_steps, from_nothing=True))
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return [f"--{name} {json.dumps(changed[name])}" for name in defaults if name in changed and name not in _OMITTED]
