"""The bits of an element of a model that knows how often each token occurs, and nothing else.

    python paper/studies/images/unigram.py tokens.npz --out unigram.json

The frequencies are those of the training tokens, each counted once more, and the bits those of the held-out ones.
"""

import argparse
import json
from pathlib import Path

from usd3.kinds.dataset import Dataset
from usd3.kinds.frequencies import frequencies
from usd3.kinds.options import DataConfig


def unigram_bits(dataset: Dataset) -> float:
    """Mean of -log2 p over the held-out elements."""
    return float(-frequencies(dataset).log2()[dataset.test.tokens.long()].mean())


def main() -> None:
    """Read the tokens, and write a row of results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokens", help="a file that usd3 encode wrote")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    bits = {"mean": unigram_bits(DataConfig("image_tokens", options.tokens).load()), "std": 0.0}
    rows = {"how often each token occurs": {"bits_per_element": bits}}
    options.out.write_text(json.dumps({"references": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
