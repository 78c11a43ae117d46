"""Say where a line may break inside code: after `_`, `.` or `::` in a table, and never inside `--option`."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*(?=</code>)")
OPTION = re.compile(r"(?<![\w-])--[\w.]+")
PART_END = re.compile(r"(?<=\w{3})(_|\.(?!py\b)|::)(?=\w\w)")  # not inside `x_t`


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with places for breaks in its inline code."""
    html = CELL.sub(lambda cell: CODE.sub(_with_breaks, cell[0]), html)
    return re.sub(r"(?<!<pre>)<code>.*?</code>", _with_whole_options, html, flags=re.DOTALL)


def _with_breaks(code: re.Match[str]) -> str:
    return PART_END.sub(r"\1<wbr>", code[0])


def _with_whole_options(code: re.Match[str]) -> str:
    return OPTION.sub(r'<span class="option">\g<0></span>', code[0])
