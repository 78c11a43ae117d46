"""Read YAML and JSON files that may come from anyone: plain data only, with limits on size and depth."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

__all__ = ["parse_json", "parse_yaml", "read_json", "read_yaml", "require_small"]

_MOST_YAML = 2**20  # characters, with aliases expanded
_MOST_JSON = 2**26  # bytes; a table of all categories may be long
_DEEPEST = 50
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path | str) -> Any:
    """The content of a YAML file; ValueError if it is not YAML or exceeds the limits."""
    try:
        return parse_yaml(_text(Path(path), _MOST_YAML))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected a YAML file ({' '.join(str(error).split())})") from None


def parse_yaml(text: str) -> Any:
    """The content of a YAML text; ValueError if it exceeds the limits."""
    require_small(text)
    return yaml.load(text, Loader=_LOADER)


def read_json(path: Path | str) -> Any:
    """The content of a JSON file; ValueError if it is not JSON or exceeds the limits."""
    try:
        return parse_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: expected a JSON file ({error})") from None


def parse_json(path: Path | str) -> Any:
    """As `read_json`, but the message of the ValueError is the reason alone, without the file's name."""
    try:
        return json.loads(_text(Path(path), _MOST_JSON))
    except UnicodeDecodeError:
        raise ValueError("it is no text") from None
    except json.JSONDecodeError as error:
        reason = "it is empty" if not error.doc.strip() else f"it ends or breaks off in line {error.lineno}"
        raise ValueError(reason) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def require_small(text: str) -> None:
    """Raise a ValueError if YAML exceeds the limits with its aliases expanded: a few lines can mean billions of values.

    The parser of the command line may read a text inside as YAML again, so each of these texts is checked too.
    """
    for inner in _texts(text):
        if "*" in inner and "&" in inner:
            with suppress(yaml.YAMLError):  # an ordinary text, not YAML
                list(_texts(inner))


def _texts(text: str) -> Iterator[str]:
    """The scalars of a YAML text; ValueError as soon as the text exceeds the limits."""
    sizes: dict[str, int] = {}  # of each complete node with an anchor
    open_nodes: list[tuple[str | None, int]] = [(None, len(text))]  # (anchor, size so far) of those not complete
    for event in yaml.parse(text, Loader=_LOADER):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((anchor, 1))
            if len(open_nodes) > _DEEPEST:
                raise ValueError(f"nested more than {_DEEPEST} deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value)
            yield event.value
        elif isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                raise ValueError(f"the alias *{anchor} stands for nothing, or for itself")
            size, anchor = sizes[anchor], None
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        outer_anchor, outer_size = open_nodes[-1]
        open_nodes[-1] = outer_anchor, outer_size + size
        if outer_size + size > _MOST_YAML:
            raise ValueError(f"more than {_MOST_YAML:,} characters, with its aliases written out")


def _text(path: Path, most: int) -> str:
    """The text of a file of at most `most` bytes."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content.decode()
