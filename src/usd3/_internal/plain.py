"""YAML and JSON files from anyone: plain data, and no more of them than can be read."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

__all__ = ["parse_json", "parse_yaml", "read_json", "read_yaml", "require_small"]

_MOST_YAML = 2**20  # characters, aliases written out
_MOST_JSON = 2**26  # bytes; a list of all categories may be long
_DEEPEST = 50
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path | str) -> Any:
    """What a YAML file says; ValueError where it is none, or none that can be read."""
    try:
        return parse_yaml(_text(Path(path), _MOST_YAML))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected a YAML file ({' '.join(str(error).split())})") from None


def parse_yaml(text: str) -> Any:
    """What a YAML text says."""
    require_small(text)
    return yaml.load(text, Loader=_LOADER)


def read_json(path: Path | str) -> Any:
    """What a JSON file says; ValueError where it is none, or none that can be read."""
    try:
        return parse_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: expected a JSON file ({error})") from None


def parse_json(path: Path | str) -> Any:
    """What a JSON file says; ValueError with the reason alone where it is none, or none that can be read."""
    try:
        return json.loads(_text(Path(path), _MOST_JSON))
    except UnicodeDecodeError:
        raise ValueError("it is no text") from None
    except json.JSONDecodeError as error:
        whole = "it is empty" if not error.doc.strip() else f"it ends or breaks off in line {error.lineno}"
        raise ValueError(whole) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def require_small(text: str) -> None:
    """Refuse YAML that grows when its aliases are written out, as few lines can say billions of values.

    A text inside may be read as YAML in its turn, where a number is expected, say; so it is looked at too.
    """
    for inner in _texts(text):
        if "*" in inner and "&" in inner:
            with suppress(yaml.YAMLError):  # it is a text, and no YAML
                list(_texts(inner))


def _texts(text: str) -> Iterator[str]:
    """The texts in a YAML text, as far as it is small."""
    sizes: dict[str, int] = {}  # of what has an anchor and is complete
    begun: list[tuple[str | None, int]] = [(None, len(text))]  # the lists and mappings we are in, and their sizes
    for event in yaml.parse(text, Loader=_LOADER):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            begun.append((anchor, 1))
            if len(begun) > _DEEPEST:
                raise ValueError(f"nested more than {_DEEPEST} deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = begun.pop()
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
        outer, sum_before = begun[-1]
        begun[-1] = outer, sum_before + size
        if sum_before + size > _MOST_YAML:
            raise ValueError(f"more than {_MOST_YAML:,} characters, with its aliases written out")


def _text(path: Path, most: int) -> str:
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content.decode()
