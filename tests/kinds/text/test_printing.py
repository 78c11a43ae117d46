"""What reaches the terminal: text, and no control characters."""

import pytest
import torch

from usd3.kinds.rendering import Drawn, Request
from usd3.kinds.text.kind import Text
from usd3.kinds.text.printing import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext, né, 中, \U0001f469‍\U0001f52c", "plain\n\ttext, né, 中, \U0001f469‍\U0001f52c"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\0b\rc\x7fd\x9be", r"a\x00b\rc\x7fd\x9be"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_escaped_and_everything_else_stays(text, shown):
    assert printable(text) == shown
    printable(text).encode()


def test_the_file_keeps_what_the_terminal_does_not_get(tmp_path):
    renderer, tokens = Text(256, (4,), "bytes").renderer(Request()), torch.tensor([list(b"a\x1b[m"), list(b"b\0\nc")])
    renderer.write(Drawn(tokens), tmp_path / "new.txt")
    assert (tmp_path / "new.txt").read_bytes() == b"----- 1 -----\na\x1b[m\n\n----- 2 -----\nb\0\nc\n"
    assert renderer.shown(Drawn(tokens)) == "----- 1 -----\na\\x1b[m\n\n----- 2 -----\nb\\x00\nc\n"
    assert renderer.shown(Drawn(tokens[:1])) == "a\\x1b[m"
