"""The card of a model that is shared: what is known about it, written by the program."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.trust import foreign_classes

__all__ = ["Card", "measured_table", "needed_options"]

_UNSAID = ("images", "baselines", "batch_size")


@dataclass(frozen=True)
class Card:
    """What is known about a model.

    `folder` is the name of its folder, `recipe` what its recipe.yaml says, `size` that of the file of weights in bytes.
    Of the data, `counts` are the objects to train on and those held out, `file` is their file or folder; None: not
    known.
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
        """The whole card."""
        parts = {"Use": self._use(), "Data": self._data(), "Training": self._training(), "Measures": self.measured}
        sections = [f"## {title}\n\n{text}" for title, text in parts.items() if text is not None]
        return "\n\n".join([f"# {self.title}", self.summary(), *sections, f"## Versions\n\n{self._versions()}"]) + "\n"

    def summary(self) -> str:
        """The model in one line."""
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


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def needed_options(config: PipelineConfig) -> list[str]:
    """Options of `usd3 evaluate` that say where the data are."""
    kind = config.build_kind()
    return [*(["--data_path PATH"] if kind.needs_path(config.data) else []), *kind.evaluate_options]


def measured_table(found: Any, model: str, file: Path, trained: Mapping[str, Any], needed: Sequence[str]) -> str:
    """The table of what `usd3 evaluate` wrote into a file, which must be about this model, and how to repeat it."""
    try:
        about = {key: found["trained"][key] for key in trained}
        compared = found.get("compared_with")
        if compared is not None:
            found = found | _without_places(compared, found.get("title"))
        table = markdown_table([read_row("model", found), *read_references(found)])
        title, version, asked = heading(found), found["torch"], _options(found["settings"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"metrics = {file}: expected what `usd3 evaluate` wrote ({error!r})") from None
    for key, value in trained.items():
        require(about[key] == value, f"{key} in {file}", about[key], f"{value}, as the model has")
    return f"{title}; by `{' '.join(['usd3 evaluate', model, *needed, *asked])}` with torch {version}.\n\n{table}"


def _without_places(compared_with: Mapping[str, Any], title: str | None) -> dict[str, Any]:
    """What sets were compared with, and the title, with names in place of folders of the machine that measured."""
    names = {key: Path(value).name for key, value in compared_with.items() if isinstance(value, str)}
    for key, name in names.items():
        title = None if title is None else title.replace(compared_with[key], name)
    return {"compared_with": {**compared_with, **names}, "title": title}


def _options(settings: Mapping[str, Any]) -> list[str]:
    """The options of an evaluation that are not the default, without those that name a place or do not matter."""
    usual = asdict(
        EvaluationSettings(steps=DiffusionConfig().usual_steps, from_nothing=True)
    )  # as `usd3 evaluate` does
    own = {name: value for name, value in settings.items() if value != usual[name]}
    return [f"--{name} {json.dumps(own[name])}" for name in usual if name in own and name not in _UNSAID]
