"""Trained models that come with the package, each a folder of `models` that `usd3 export` wrote, found by its name."""

from pathlib import Path

__all__ = ["find_model", "list_models", "model_summary", "results_folder"]

FOLDER = Path(__file__).parent / "models"


def list_models() -> dict[str, str]:
    """Name and one line of every packaged model."""
    folders = sorted(file.parent for file in FOLDER.glob("*/config.json"))
    return {folder.name: next(iter(model_summary(folder)), "") for folder in folders}


def model_summary(folder: Path) -> list[str]:
    """The lines of a model card between its title and its first section, without empty ones."""
    card = folder / "README.md"
    lines = card.read_text(encoding="utf-8").partition("\n## ")[0].splitlines() if card.is_file() else []
    return [line for line in lines if line and not line.startswith("# ")]


def find_model(name: Path | str) -> Path:
    """The folder of a model. One that exists is meant, whatever it is; else the packaged model of that name."""
    folder, packaged = Path(name), FOLDER / name
    if folder.is_dir() or packaged.parent != FOLDER or not (packaged / "config.json").is_file():
        return folder
    return packaged


def results_folder(name: Path | str) -> Path:
    """Where the results of a model go by default: into the folder of a run; else below runs/models.

    A packaged or shared model has a card in place of its recipe, and stays as it is.
    """
    folder = find_model(name)
    shared = (folder / "README.md").is_file() and not (folder / "recipe.yaml").is_file()
    return Path("runs", "models", folder.resolve().name) if shared else folder
