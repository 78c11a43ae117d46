"""Bach's chorales, the split of Boulanger-Lewandowski: likelihood of the test chorales, and rules of voice leading.

    python benchmarks/chorales.py RUN --data jsb_chorales_16th.npz

RUN is a model that was trained on the array `train` alone. The file has arrays train, valid and test (N, T, 4), -1
after the end of a chorale. Every chorale is one context, however long: the network must take any number of steps, as
`model.net voices` does. Three likelihoods, in nats:

    any order     minus the mean log-likelihood over all orders of the notes, one at a time, an upper bound on the
                  nats of a chorale; for each 16th-note frame of four voices, and for each note
    frames        Coconet's measure (Huang et al. 2017, and its published code): whole frames in a random order; inside
                  a frame one voice after the other in a random order, given the voices that the model itself found
                  likeliest. --orders orders are averaged as probabilities, for each frame by itself. Takes a GPU
                  (--frames N: N random frames of each chorale; 0: all)
    ... sounding  the same without the silent notes: a silent voice costs Coconet nothing

Then Bach's test chorales, his training chorales and draws of the model, in windows of the model's length: harmonised
sopranos of the test chorales, and chorales from nothing. `copied` is the share of bars that some training chorale has
too, in any key and from any beat on; `as Bach` the share of the drawn notes that are those of Bach.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from usd3._internal.random import seed_of
from usd3.bench.machine import machine
from usd3.kinds.chorale.notation import RANGES
from usd3.kinds.chorale.reading import pieces_of
from usd3.kinds.chorale.windows import Piece, as_sequences
from usd3.kinds.melody.notation import REST
from usd3.kinds.numpy_files import read_arrays
from usd3.metrics.chorales import CHORALE_COLUMNS, chorale_structure
from usd3.metrics.summary import Summary, format_table
from usd3.pipeline.pipeline import Pipeline

BAR, BEAT = 16, 4
VOICES = 4


def main() -> None:
    """Measure a model, print the results, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a run, or of an exported model")
    parser.add_argument("--data", type=Path, required=True, help="the .npz file of the chorales")
    parser.add_argument("--split", default="test", help="the array to measure")
    parser.add_argument(
        "--samples", type=int, default=256, help="numbers of masked notes for the any-order bound; 0: no"
    )
    parser.add_argument("--frames", type=int, default=None, help="measure so many frames of each as Coconet; 0: all")
    parser.add_argument("--orders", type=int, default=5, help="orders of the frames")
    parser.add_argument("--runs", type=int, default=3, help="how often to draw; 0: no draws")
    parser.add_argument("--steps", type=int, default=None, help="sampling steps; by default as usd3 sample")
    parser.add_argument("--sampler", default=None, help="by default that of the model")
    parser.add_argument("--half", action="store_true", help="frames in bfloat16, which it also trained in")
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=None, help="a .json file for the results")
    options = parser.parse_args()
    pipeline = Pipeline.from_pretrained(options.run, device=options.device)
    pipeline.model.eval()
    arrays = read_arrays(options.data)
    assert isinstance(arrays, dict)
    pieces = {key: pieces_of(arrays[key], key) for key in ("train", options.split)}
    test, began = pieces[options.split], time.monotonic()
    found: dict[str, object] = {"chorales": len(test), "steps": sum(len(piece.steps) for piece in test)}
    found["settings"] = {name: value for name, value in vars(options).items() if name not in ("run", "data", "out")}
    if options.samples:
        found["any order"] = summary(any_order(pipeline, test, options.samples), test)
        print_likelihood("any order", found["any order"])
    if options.frames is not None:
        nats = []
        for i, piece in enumerate(test):
            with torch.autocast(pipeline.device.type, torch.bfloat16, enabled=options.half):
                nats.append(framewise(pipeline, piece, options.orders, i, options.frames))
            done = sum(row[0] for row in nats) / sum(len(piece.steps) for piece in test[: i + 1])
            print(f"frames: {i + 1} of {len(test)} chorales, {done:.3f} nats a frame so far", flush=True)
        for column, name in enumerate(("frames", "frames, sounding")):
            found[name] = summary(np.array([row[column] for row in nats]), test)
            print_likelihood(name, found[name])
    if options.runs:
        rows = voice_leading(pipeline, pieces["train"], test, options)
        found["voice leading"] = {name: {key: cell.mean for key, cell in row.items()} for name, row in rows.items()}
        print(format_table(rows, CHORALE_COLUMNS | {"copied": "copied", "as_bach": "as Bach"}))
    found |= {"run": Path(options.run).name, "split": options.split, "seconds": round(time.monotonic() - began, 1)}
    found |= machine(pipeline.device)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


# ---- likelihood ---------------------------------------------------------------------------------------------------


def any_order(pipeline: Pipeline, pieces: Sequence[Piece], samples: int) -> np.ndarray:
    """The any-order bound in nats of each whole chorale, (N,)."""
    nats = []
    for i, piece in enumerate(pieces):
        x = torch.from_numpy(piece.steps)[None].long().to(pipeline.device)
        parts = 16  # rows at once; each estimates from strata of its own
        generator = torch.Generator(pipeline.device).manual_seed(seed_of(0, i))
        rows = x.expand(parts, -1, -1)
        bound = pipeline.method.bound(pipeline.model, rows, max(1, samples // parts), generator=generator)
        nats.append(float(bound.mean()))
    return np.array(nats)


@torch.no_grad()
def framewise(pipeline: Pipeline, piece: Piece, orders: int, seed: int, most: int = 0) -> tuple[float, float]:
    """Nats of a chorale frame by frame, of all notes and of those that sound.

    The frames are in a random order. A row of a batch predicts one of them, given the true ones before it. Its voices
    come one after the other; a voice that is done shows what the model took for likeliest, not the truth. If `most` is
    not 0, at most so many frames, chosen at random, stand for all.
    """
    generator = torch.Generator().manual_seed(seed_of(1, seed))
    truth = torch.from_numpy(piece.steps).long().to(pipeline.device)  # (T, 4)
    steps, mask = len(truth), pipeline.diffusion.noise.mask
    assert mask is not None
    measured = torch.randperm(steps, generator=generator)[: most or steps].to(pipeline.device)  # (n,)
    rows = torch.arange(len(measured), device=pipeline.device)
    logs = torch.zeros(2, orders, len(measured), dtype=torch.float64, device=pipeline.device)
    for order in range(orders):
        rank = torch.randperm(steps, generator=generator).to(pipeline.device)  # when a frame comes
        hidden = rank >= rank[measured][:, None]  # (n, T) row i: frames that do not come before the i-th
        x = torch.where(hidden[..., None], mask, truth)  # (n, T, 4)
        turns = torch.rand(len(measured), VOICES, generator=generator).argsort(1).to(pipeline.device)
        for turn in range(VOICES):
            voice = turns[:, turn]
            log_p = torch.cat([_log_probs(pipeline, part, at, of) for part, at, of in _parts(x, measured, voice)])
            true = truth[measured, voice]
            log_true = log_p.gather(1, true[:, None])[:, 0]
            logs[0, order] += log_true
            logs[1, order] += log_true.masked_fill(true == REST, 0.0)
            x[rows, measured, voice] = log_p.argmax(1)
    frame_logs = logs.logsumexp(1) - np.log(orders)  # (2, n): the orders averaged as probabilities
    nats, sounding = (-frame_logs.mean(1) * steps).tolist()
    return nats, sounding


def _parts(x: Tensor, frames: Tensor, voice: Tensor, size: int = 256) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    return zip(x.split(size), frames.split(size), voice.split(size))


def _log_probs(pipeline: Pipeline, x: Tensor, frames: Tensor, voice: Tensor) -> Tensor:
    """log p of the pitch of one note in each row, (n, 129) float64; a masked note is none of the categories."""
    logits = pipeline.model(x, torch.ones(len(x), device=x.device))
    rows = torch.arange(len(x), device=x.device)
    log_p: Tensor = logits[rows, frames, voice, : REST + 1].double().log_softmax(-1)
    return log_p


def summary(nats: np.ndarray, pieces: Sequence[Piece]) -> dict[str, float]:
    """Nats for each frame and note: the mean over all frames, and that over chorales with its standard error."""
    steps = np.array([len(piece.steps) for piece in pieces])
    each = nats / steps
    error = float(each.std(ddof=1) / len(each) ** 0.5)
    pooled = float(nats.sum() / steps.sum())
    return {"per_frame": pooled, "of_chorales": float(each.mean()), "error": error, "per_note": pooled / VOICES}


def print_likelihood(name: str, found: object) -> None:
    """One line."""
    assert isinstance(found, dict)
    line = "{per_frame:.4f} nats a frame, {per_note:.4f} a note; mean over chorales {of_chorales:.4f} ± {error:.4f}"
    print(f"{name}: {line.format(**found)}", flush=True)


# ---- voice leading ------------------------------------------------------------------------------------------------


def voice_leading(
    pipeline: Pipeline, train: Sequence[Piece], test: Sequence[Piece], options: argparse.Namespace
) -> dict[str, dict[str, Summary]]:
    """The measures of Bach's chorales and of draws, by the name of the row."""
    length = pipeline.config.shape[0]
    known = bars_of(train)
    starts = {
        name: as_sequences([Piece(p.name, p.steps[:length]) for p in part], length)
        for name, part in (("test", test), ("train", train))
    }
    truth, pad = starts["test"].tokens.long(), starts["test"].pad
    given = torch.zeros_like(truth, dtype=torch.bool)
    given[..., 0] = True
    how = {"num_steps": options.steps, "sampler": options.sampler}
    harmonised = torch.stack(
        [pipeline.sample(tokens=truth, given=given, pad=pad, seed=r, **how).cpu() for r in range(options.runs)]
    )
    free = torch.stack([pipeline.sample(num=len(truth), seed=r, **how).cpu() for r in range(options.runs)])
    sets = {
        "Bach, test": (truth[None], pad),
        "Bach, training": (starts["train"].tokens.long()[None], starts["train"].pad),
        "ours, harmonised": (harmonised, pad),
        "ours, from nothing": (free, None),
    }
    rows = {}
    for name, (runs, padding) in sets.items():
        others = known if name != "Bach, training" else None
        rows[name] = chorale_structure(runs, RANGES, padding)
        if others is not None:
            rows[name]["copied"] = Summary(copied(runs, padding, others), 0.0)
    drawn = ~given if pad is None else ~given & ~pad
    same = (harmonised == truth)[:, drawn].float().mean(1).numpy()
    rows["ours, harmonised"]["as_bach"] = Summary(float(same.mean()), float(same.std()))
    return rows


def bars_of(pieces: Sequence[Piece]) -> set[bytes]:
    """All bars of chorales, from any beat on and in any key."""
    return {
        key
        for piece in pieces
        for start in range(0, len(piece.steps) - BAR + 1, BEAT)
        if (key := in_any_key(piece.steps[start : start + BAR])) is not None
    }


def in_any_key(bar: np.ndarray) -> bytes | None:
    """A bar (16, 4) by the distances of its pitches from the lowest; None for a bar without a note."""
    sounds = bar < REST
    if not sounds.any():
        return None
    return np.where(sounds, bar.astype(int) - bar[sounds].min(), -1).tobytes()


def copied(runs: Tensor, pad: Tensor | None, known: set[bytes]) -> float:
    """The share of the whole bars of chorales (R, N, T, 4) that are in `known`."""
    found = []
    for run in runs:
        for i, row in enumerate(run.numpy()):
            steps = len(row) if pad is None else int((~pad[i]).all(1).sum())
            keys = [in_any_key(row[start : start + BAR]) for start in range(0, steps - BAR + 1, BAR)]
            found += [key in known for key in keys if key is not None]
    return float(np.mean(found)) if found else float("nan")


if __name__ == "__main__":
    main()
