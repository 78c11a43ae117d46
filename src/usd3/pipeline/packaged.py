"""Trained models that come with the package, found by name: folders below `models` that `usd3 export` wrote."""

from pathlib import Path

from usd3._internal.messages import suggestion

__all__ = ["FOLDER", "PRESENTED", "find_model", "list_models", "model_summary", "results_folder", "whole_model"]

FOLDER = Path(__file__).parent / "models"

PRESENTED = {
    "chorale": ("Bach's chorales", "Harmonises a tune in four voices, after Bach's chorales"),
    "bach": ("Bach's melodies", "Sixteen bars of one voice, after Bach's works"),
    "pop909": ("Pop songs", "Sixteen bars of a melody, after 909 Chinese pop songs"),
    "sudoku": ("Sudoku", "Solves puzzles, and makes new boards"),
}
"""What newcomers are told about each packaged model: its title and a line."""


def list_models() -> dict[str, str]:
    """A description in one line for each packaged model, by its name."""
    folders = sorted(file.parent for file in FOLDER.glob("*/config.json"))
    return {folder.name: next(iter(model_summary(folder)), "") for folder in folders}


def model_summary(folder: Path) -> list[str]:
    """The lines of a model card between its title and its first section, without empty lines."""
    card = folder / "README.md"
    lines = card.read_text(encoding="utf-8").partition("\n## ")[0].splitlines() if card.is_file() else []
    return [line for line in lines if line and not line.startswith("# ")]


def find_model(name: Path | str) -> Path:
    """The folder `name` if it exists, otherwise the folder of the packaged model of this name.

    If neither exists, the result is `name` itself, for the error message of the caller.
    """
    folder, packaged = Path(name), FOLDER / name
    if folder.is_dir() or packaged.parent != FOLDER or not (packaged / "config.json").is_file():
        return folder
    return packaged


def whole_model(name: Path | str) -> Path:
    """The same folder; raises an error if it has no config or no weights."""
    folder = find_model(name)
    for file in ("config.json", "model.safetensors"):
        if not (folder / file).is_file():
            expected, packaged = "a folder with config.json and model.safetensors", list_models()
            if packaged:
                expected += f", or a packaged model: {', '.join(packaged)}{suggestion(folder.name, packaged)}"
            raise FileNotFoundError(f"{folder} has no {file}: expected {expected}")
    return folder


def results_folder(name: Path | str) -> Path:
    """The default folder for results of a model: the folder of its run, or one below runs/models.

    The folder of a packaged or shared model, which has a card and no recipe, is never changed.
    """
    folder = find_model(name)
    is_shared = (folder / "README.md").is_file() and not (folder / "recipe.yaml").is_file()
    return Path("runs", "models", folder.resolve().name) if is_shared else folder
