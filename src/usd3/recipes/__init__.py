"""The packaged recipes. They combine, and later ones win: `usd3 train pop909 paper-small discrete ce`."""

from pathlib import Path

from usd3._internal.messages import suggestion
from usd3._internal.yaml_json import read_yaml

__all__ = ["find_recipe", "list_recipes", "require_sections"]


def list_recipes() -> dict[str, str]:
    """The first line of every packaged recipe, which says what it is for, by the recipe's name."""
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    return {file.stem: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for file in files}


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe: a packaged recipe by its name, or a file of the user by its path."""
    from usd3._internal.checks import require  # imports torch, too early while the command line starts

    file, packaged = Path(name), Path(__file__).parent / f"{name}.yaml"
    if file.suffix in (".yaml", ".yml") and file.is_file():
        require_sections(file)
        return file
    is_packaged = packaged.is_file() and packaged.parent == Path(__file__).parent
    recipes = list_recipes()
    require(is_packaged, "recipe", name, f"a YAML file, or one of: {', '.join(recipes)}{suggestion(name, recipes)}")
    return packaged


def require_sections(path: Path) -> None:
    """Raise a ValueError unless each section of a recipe, such as `model:`, holds options with names and values.

    A recipe cannot name other recipes by `config:`; the parser of the command line would load them unchecked.
    """
    from usd3._internal.checks import require

    content = read_yaml(path)
    require(isinstance(content, dict), "recipe", path, "sections such as `model:` with options below them")
    for name in ("data", "diffusion", "method", "model", "training"):
        section = content.get(name, {})
        require(isinstance(section, dict), f"{name} in {path}", section, "options with a name and a value each")
    alone = "no such option, as further files are named on the command line"
    require("config" not in content, f"config in {path}", content.get("config"), alone)
