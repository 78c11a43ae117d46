"""Melodies from start to end: draw from a trained model, then train one on Bach, continue and fill melodies, evaluate.

    python examples/bach.py

It prints each command before it runs it, so you can run the commands by hand. A few minutes on two CPU cores.
"""

import argparse
import sys
import time
from pathlib import Path

from usd3._internal.files import new_folder
from usd3.cli.main import main as usd3


def main() -> int:
    """Run the commands; all results go into new folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs", help="where the new folders are created")
    parser.add_argument("--limit", type=int, default=100, help="held-out melodies for the evaluation")
    parser.add_argument("--steps", type=int, default=64, help="sampling steps")
    options, training_options = parser.parse_known_args()
    began = time.monotonic()
    tunes, run = (new_folder(options.runs, name) for name in ("tunes", "demo"))
    prompt = ["--prompt", "test", "--steps", str(options.steps)]
    continued, filled = str(run / "continued"), str(run / "filled")
    commands = [
        ["sample", "bach", "--num", "4", "--steps", str(options.steps), "--out", str(tunes)],
        ["train", "bach-small", "absorbing", "--training.steps", "1500", "--run", str(run), *training_options],
        ["sample", str(run), *prompt, "--num", "4", "--prefix", "32", "--animate", "true", "--out", continued],
        ["sample", str(run), *prompt, "--num", "1", "--fill", "48:80", "--out", filled],
        ["evaluate", str(run), "--steps", str(options.steps), "--limit", str(options.limit)],
    ]
    for command in commands:
        print(f"\n$ usd3 {' '.join(command)}", flush=True)
        status = usd3(command)
        if status:
            return status
    print(f"\n{time.monotonic() - began:.0f} seconds. Listen to and look at:")
    for folder in (tunes, run):
        for path in sorted(file for kind in ("mid", "png", "gif") for file in Path(folder).rglob(f"*.{kind}")):
            print(f"  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
