"""Every place of a Python file where one operator, constant or order of arguments can be changed."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Place", "changed", "places"]

_BINARY: dict[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("/",)),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("*",)),
    ast.Mod: ("%", ("*",)),
    ast.Pow: ("**", ("*",)),
    ast.MatMult: ("@", ("*",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
}
_COMPARED: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_CONSTANTS = {"0": ("1",), "1": ("0", "2"), "2": ("1",), "0.0": ("1.0",), "1.0": ("0.0", "2.0"), "2.0": ("1.0",)}
_OPPOSITES = {"min": "max", "amin": "amax", "minimum": "maximum", "argmin": "argmax", "any": "all", "floor": "ceil"}
_OPPOSITES |= {b: a for a, b in _OPPOSITES.items()}
_NOT_CODE = {"__repr__", "__str__", "__all__", "warn", "cast", "TypeVar", "overload"}  # texts and types


@dataclass(frozen=True)
class Place:
    """A piece of a file, by offsets into its text, and what it can be replaced by."""

    start: int
    end: int
    choices: tuple[str, ...]


class _File:
    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def begins(self) -> list[int]:
        """The offset of each line; the tree counts columns in bytes, so the text must be ASCII where it is code."""
        lines = self.text.splitlines(keepends=True)
        return [0, *(sum(map(len, lines[:i])) for i in range(1, len(lines) + 1))]

    def offset(self, line: int, column: int) -> int:
        begin = self.begins[line - 1]
        encoded = self.text[begin : self.begins[line]].encode()
        return begin + len(encoded[:column].decode())

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def between(self, left: ast.expr, right: ast.expr, pattern: str, choices: tuple[str, ...]) -> Iterator[Place]:
        """The operator between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        code = re.sub(r"#.*", lambda comment: " " * len(comment[0]), self.text[start:end])
        found = re.search(pattern, code)
        if found:
            yield Place(start + found.start(), start + found.end(), choices)


def places(text: str) -> list[Place]:
    """Where a file can be changed, in order; never in docstrings, types, decorators, errors or other texts."""
    file = _File(text)
    found = {place for node in _code(ast.parse(text)) for place in _places(node, file)}
    return sorted(found, key=lambda place: (place.start, place.end))


def changed(text: str, place: Place, choice: str) -> str:
    """The text with the place replaced."""
    return text[: place.start] + choice + text[place.end :]


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below that say what is computed."""
    yield node
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or _is_text(node):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _code(child)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        return name in _NOT_CODE
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in _NOT_CODE for target in node.targets)
    if isinstance(node, ast.FunctionDef):
        return node.name in _NOT_CODE
    return isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom)


def _places(node: ast.AST, file: _File) -> Iterator[Place]:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY and not _of_strings(node):
        sign, choices = _BINARY[type(node.op)]
        yield from file.between(node.left, node.right, re.escape(sign), choices)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _BINARY:
        sign, choices = _BINARY[type(node.op)]
        yield from file.between(node.target, node.value, re.escape(sign), choices)
    elif isinstance(node, ast.Compare):
        for left, compared, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            sign, choices = _COMPARED[type(compared)]
            yield from file.between(left, right, sign, choices)
    elif isinstance(node, ast.BoolOp):
        sign, choice = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            yield from file.between(left, right, rf"\b{sign}\b", (choice,))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        start, end = file.span(node)
        first = re.match(r"(not\b|-|~)\s*", file.text[start:end])
        assert first is not None
        yield Place(start, start + first.end(), ("",))
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and file.of(node) in _CONSTANTS:
        yield Place(*file.span(node), _CONSTANTS[file.of(node)])
    elif isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                yield Place(*file.span(bound), (f"({file.of(bound)}) + 1",))
    elif isinstance(node, ast.Call):
        yield from _calls(node, file)


def _calls(node: ast.Call, file: _File) -> Iterator[Place]:
    start, end = file.span(node.func)
    name = file.text[start:end].rpartition(".")[2]
    if name in _OPPOSITES:
        yield Place(end - len(name), end, (_OPPOSITES[name],))
    if name == "where" and len(node.args) == 3:
        (begin, middle), (second, last) = file.span(node.args[1]), file.span(node.args[2])
        yield Place(begin, last, (file.text[second:last] + file.text[middle:second] + file.text[begin:middle],))
    for keyword in node.keywords:
        if keyword.arg in ("min", "max"):
            begin = file.offset(keyword.lineno, keyword.col_offset)
            yield Place(begin, begin + 3, (_OPPOSITES[keyword.arg],))


def _of_strings(node: ast.BinOp) -> bool:
    texts = (side.value if isinstance(side, ast.Constant) else side for side in (node.left, node.right))
    return any(isinstance(text, str | ast.JoinedStr) for text in texts)
