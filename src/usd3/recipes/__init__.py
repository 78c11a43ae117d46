"""The packaged recipes. They combine: `usd3 train pop909 paper-small discrete ce` takes one after the other."""

from pathlib import Path

from usd3._internal.messages import near
from usd3._internal.plain import read_yaml

__all__ = ["find_recipe", "list_recipes", "require_sections"]


def list_recipes() -> dict[str, str]:
    """Name and first line of every packaged recipe."""
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    return {file.stem: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for file in files}


def find_recipe(name: str) -> Path:
    """The file of a packaged recipe, or a YAML file of your own."""
    from usd3._internal.checks import require  # it brings torch, for which the command line is not ready at its start

    own, packaged = Path(name), Path(__file__).parent / f"{name}.yaml"
    if own.suffix in (".yaml", ".yml") and own.is_file():
        require_sections(own)
        return own
    known = packaged.is_file() and packaged.parent == Path(__file__).parent
    require(known, "recipe", name, f"a YAML file, or one of: {', '.join(list_recipes())}{near(name, list_recipes())}")
    return packaged


def require_sections(path: Path) -> None:
    """A recipe is a mapping whose values are mappings or plain values; the parser would not read another it names."""
    from usd3._internal.checks import require

    content = read_yaml(path)
    require(isinstance(content, dict), "recipe", path, "sections such as `model:` with options below them")
    for name in ("data", "diffusion", "method", "model", "training"):
        section = content.get(name, {})
        require(isinstance(section, dict), f"{name} in {path}", section, "options with a name and a value each")
    alone = "no such option, as further files are named on the command line"
    require("config" not in content, f"config in {path}", content.get("config"), alone)
