"""Fill in the table of the public names of `usd3`, with the first line of each docstring and a link to the rest."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import usd3

PLACE = "<!-- the public names -->"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the table in its place."""
    return (
        markdown.replace(PLACE, "\n".join(["| name | what it is |", "|---|---|", *_rows()]))
        if PLACE in markdown
        else markdown
    )


def _rows() -> list[str]:
    rows = []
    for name in sorted(set(usd3.__all__) - {"__version__"}, key=str.lower):
        thing = getattr(usd3, name)
        package = thing.__module__.split(".")[1]
        line = (thing.__doc__ or "").strip().splitlines()[0].replace("|", "&#124;")
        rows.append(f"| [`usd3.{name}`]({package}.md#{thing.__module__}.{thing.__qualname__}) | {line} |")
    return rows
