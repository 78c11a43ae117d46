"""Execute the notebooks from top to bottom; with `--write`, store what they print and draw in them.

    python notebooks/run.py                         # both; an error ends it with a traceback and status 1
    python notebooks/run.py mathematics --write

The cells are plain Python: they show text by `print` and pictures by `plt.show()`. So no kernel is needed.
"""

import argparse
import base64
import io
import json
import os
import tempfile
import time
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
Cell = dict[str, Any]


def executed(path: Path) -> list[Cell]:
    """The cells of a notebook after a run in an empty folder, with their outputs."""
    cells: list[Cell] = json.loads(path.read_text())["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        codes = [cell for cell in cells if cell["cell_type"] == "code"]
        for number, cell in enumerate(codes, 1):
            code = compile("".join(cell["source"]), f"{path.name}, code cell {number}", "exec")
            cell["outputs"], cell["execution_count"] = _outputs(code, names), number
    return cells


def _outputs(code: Any, names: dict[str, Any]) -> list[Cell]:
    """Run one cell; its printed text and its pictures, in the form of a notebook."""
    outputs: list[Cell] = []
    printed = io.StringIO()

    def show() -> None:
        _flush(printed, outputs)
        for number in plt.get_fignums():
            figure, picture = plt.figure(number), io.BytesIO()
            figure.savefig(picture, format="png", dpi=72, metadata={"Software": None})
            data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": figure.get_suptitle()}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        plt.close("all")

    plt.show = show  # type: ignore[assignment]
    with redirect_stdout(printed):
        exec(code, names)
    _flush(printed, outputs)
    return outputs


def _flush(printed: io.StringIO, outputs: list[Cell]) -> None:
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
        printed.seek(0)
        printed.truncate()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="notebooks without .ipynb; all by default")
    parser.add_argument("--write", action="store_true", help="store the outputs")
    options = parser.parse_args()
    for path in [FOLDER / f"{name}.ipynb" for name in options.names] or sorted(FOLDER.glob("*.ipynb")):
        begun = time.perf_counter()
        cells = executed(path)
        if options.write:
            notebook = json.loads(path.read_text()) | {"cells": cells}
            temporary = path.with_suffix(".new")
            temporary.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
            os.replace(temporary, path)
        print(f"{path.name}: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
