"""Make a page of each notebook: its text, its code, what it printed and its pictures, as they are stored in it."""

import base64
import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add `notebooks/NAME.md` and its pictures."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        markdown, pictures = _page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def _page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Markdown, and the pictures that it shows by their file names."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if "text" in output:
                parts.append(f'```text title="prints"\n{"".join(output["text"]).rstrip()}\n```')
            if "image/png" in output.get("data", {}):
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(output["data"]["image/png"]))
                parts.append(f"![{''.join(output['data']['text/plain'])}]({name})")
    parts.insert(1, f"*The notebook: `notebooks/{path.name}`.*")
    return "\n\n".join(parts) + "\n", pictures
