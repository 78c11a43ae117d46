"""Take into the site what its pages link to elsewhere in the repository, so that every link works offline.

Pages link as they do on a code host: `../paper/findings.md`. A linked file outside `docs/` becomes part of the site
as `repository/<its path>`: Markdown as a page, whose own links are followed, code as a page that shows it, and anything
else as it is. A link to a folder leads to its README.md, and is plain text where there is none.
"""

import re
from html import escape
from os.path import relpath
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?P<text>!?\[[^\[\]]*\])\((?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")
CODE = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".tex": "latex", "Makefile": "make"}
PIPE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")  # in a table: code with a pipe that code hosts want escaped
NOTEBOOK = ".ipynb"  # the other hook makes pages of these


def _language(path: Path) -> str | None:
    return CODE.get(path.suffix or path.name)


def _uri(path: Path, docs: Path) -> str:
    """Where a file of the repository is in the site's sources."""
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    place = path.relative_to(ROOT).as_posix()
    if path.suffix == NOTEBOOK:
        return place.removesuffix(NOTEBOOK) + ".md"
    return f"repository/{place}" + (".md" if _language(path) else "")


def _target(source: Path, link: str) -> Path | None:
    """The file that a link in `source` means; None where it is no file of the repository."""
    path = (source.parent / link).resolve()
    path = path / "README.md" if path.is_dir() else path
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def _file(path: Path, uri: str, config: MkDocsConfig) -> File:
    language = _language(path)
    if language is None:
        return File.generated(config, uri, abs_src_path=str(path))
    name = path.relative_to(ROOT).as_posix()
    return File.generated(config, uri, content=f"# `{name}`\n\n````{language}\n{path.read_text()}````\n")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to, and what that links to."""
    docs = Path(config.docs_dir)
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    waiting += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for named in waiting[-2:]:
        files.append(_file(named, _uri(named, docs), config))
    while waiting:
        source = waiting.pop()
        for link in LINK.finditer(source.read_text()):
            path = _target(source, link["path"])
            if path is None or path.suffix == NOTEBOOK:
                continue
            uri = _uri(path, docs)
            if files.get_file_from_path(uri) is None:
                files.append(_file(path, uri, config))
                if path.suffix == ".md":
                    waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links at the places in the site."""
    docs, uri = Path(config.docs_dir), page.file.src_uri
    outside = uri.removeprefix("repository/") if uri.startswith("repository/") else None
    source = (docs / uri if outside is None else ROOT / outside).resolve()
    if uri.startswith("notebooks/"):
        source = ROOT / uri
    if not source.exists() and not uri.startswith("notebooks/"):
        return markdown  # a page of code

    def moved(link: re.Match[str]) -> str:
        path = _target(source, link["path"])
        if path is None:
            folder = (source.parent / link["path"]).resolve().is_dir()
            return link["text"].strip("[]") if folder else link[0]
        here = relpath(_uri(path, docs), PurePosixPath(uri).parent)
        return f"{link['text']}({here}{link['anchor'] or ''})"

    escaped = PIPE.sub(lambda code: "<code>" + escape(code[1]).replace("\\|", "&#124;") + "</code>", markdown)
    return LINK.sub(moved, escaped)
