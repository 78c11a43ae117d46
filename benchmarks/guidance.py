"""What guidance brings, and what it costs.

    python benchmarks/guidance.py promoters RUN --promoters Arabidopsis_tata.fa --others Arabidopsis_non_prom.fa
    python benchmarks/guidance.py images RUN --vqgan VQGAN --judge CLASSIFIER --images IMAGES
    python benchmarks/guidance.py cost RUN --where label=promoter

`promoters`: RUN is a model of both classes, `usd3 train promoter=...,none=...`. The judge is a convolutional network
that learns real sequences of both classes; the sequences that RUN held out say how good it is. For each scale of
guidance, 0 (no condition), 1 (plain conditioning), ..., the share of drawn sequences that the judge takes for
promoters, and the distance of their k-mers to held-out promoters.

`images`: RUN is a model of image tokens with labels, `--data.labels true`. For each scale, the share of drawn images
that the judge takes for the class that was asked for, and the Fréchet distance of all images to the training images by
the judge's features.

`cost`: seconds of a guided and of an unguided step, several times in turn, each of the same number of objects.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import usd3
from usd3._internal.files import written_whole
from usd3.bench.machine import machine
from usd3.kinds.image.folders import load_classifier, load_vqgan
from usd3.kinds.image.sets import load_images
from usd3.metrics import ImageMetrics
from usd3.metrics.kmers import kmer_spectrum
from usd3.pictures.figures import INK, SOFT_INK, new_figure, save, style
from usd3.pictures.labels import Label, write_labels

PROMOTER = 0  # the number of the class
SCALES = [0, 1, 1.5, 2, 3, 5]

Row = dict[str, Any]

CURVES = {
    "promoters": (("judged", "taken for promoters"), ("6-mers", "distance of 6-mers to held-out promoters")),
    "images": (("agrees", "taken for the class"), ("classifier_frechet", "Fréchet distance to the training images")),
}
"""Key and title of the quality and of the distance in the picture of a command."""


# ---- promoters ------------------------------------------------------------------------------------------------------


class Judge(nn.Module):
    """Log odds that a sequence (B, L) of letters 0..3 is a promoter."""

    def __init__(self, width: int = 128):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(4, width, 15, padding=7),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Dropout(0.3),
            nn.Conv1d(width, width, 9, padding=4),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Dropout(0.3),
            nn.Flatten(),
            nn.LazyLinear(64),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(64, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Log odds (B,)."""
        odds: Tensor = self.body(nn.functional.one_hot(x.clamp(0, 3), 4).mT.float())
        return odds.squeeze(1)


def train_judge(x: Tensor, is_promoter: Tensor, device: torch.device, epochs: int = 30, batch: int = 64) -> Judge:
    """A judge that learnt sequences x (N, L) and their classes (N,)."""
    torch.manual_seed(0)
    judge = Judge().to(device)
    judge(x[:2].to(device))  # makes the lazy layer
    weight = ((~is_promoter).sum() / is_promoter.sum()).to(device)
    optimizer = torch.optim.AdamW(judge.parameters(), 1e-3, weight_decay=0.05)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * (len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // batch * batch].split(batch):
            odds, truth = judge(x[rows].to(device)), is_promoter[rows].float().to(device)
            loss = nn.functional.binary_cross_entropy_with_logits(odds, truth, pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
    return judge.eval()


@torch.no_grad()
def taken_for_promoters(judge: Judge, x: Tensor, device: torch.device) -> float:
    """The share of sequences that the judge takes for promoters."""
    return float(torch.cat([judge(part.to(device)) > 0 for part in x.split(512)]).float().mean())


def promoters(options: argparse.Namespace) -> list[Row]:
    """A row for each scale and seed, and for real sequences."""
    pipeline = usd3.Pipeline.from_pretrained(options.run)
    data = pipeline.config.data.at(f"promoter={options.promoters},none={options.others}").load(pipeline.kind)
    device, (train, train_label), (test, test_label) = (
        pipeline.device,
        *map(_tokens_and_classes, (data.train, data.test)),
    )
    judge = train_judge(train, train_label == PROMOTER, device)
    real, others = test[test_label == PROMOTER], test[test_label != PROMOTER]
    held_out = {k: kmer_spectrum(real.numpy(), k, 4) for k in (3, 6)}

    def row(what: str, x: Tensor, **about: Any) -> Row:
        distances = {f"{k}-mers": kmer_spectrum(x.numpy(), k, 4).distance(held_out[k]) for k in (3, 6)}
        judged = taken_for_promoters(judge, x, device)
        different = len(torch.unique(x, dim=0)) / len(x)
        return shown({"what": what, **about, "num": len(x), "judged": judged, **distances, "different": different})

    rows = [row("training promoters", train[train_label == PROMOTER]), row("held-out promoters", real)]
    rows.append(row("held-out others", others))
    for scale in options.scales:
        for seed in range(options.seeds):
            x = drawn(pipeline, options, scale, seed, where={"label": "promoter"}, num=options.num)
            rows.append(row("drawn", x, scale=scale, seed=seed))
    return [row | about_draws(pipeline, options) for row in rows]


def _tokens_and_classes(rows: Any) -> tuple[Tensor, Tensor]:
    return rows.tokens.long(), rows.labels[:, 0]


# ---- images ---------------------------------------------------------------------------------------------------------


def images(options: argparse.Namespace) -> list[Row]:
    """A row for each scale and seed, and for the VQGAN's reconstruction of held-out images."""
    pipeline = usd3.Pipeline.from_pretrained(options.run)
    vqgan, judge, real = load_vqgan(options.vqgan), load_classifier(options.judge), load_images(options.images)
    metrics = ImageMetrics(real.train, judge)
    classes = len(pipeline.config.labels["label"])

    @torch.no_grad()
    def row(what: str, pixels: Tensor, wanted: Tensor, **about: Any) -> Row:
        device = next(judge.parameters()).device
        guess = torch.cat([judge(part.to(device).float() / 127.5 - 1).argmax(1).cpu() for part in pixels.split(500)])
        agrees = float((guess == wanted).float().mean())
        scores = metrics(pixels)
        return shown({"what": what, **about, "num": len(pixels), "agrees": agrees, **scores})

    labels = torch.arange(options.num) % classes
    assert real.test_labels is not None
    rows = [row("held-out images", real.test, real.test_labels)]
    rebuilt = torch.cat([vqgan.decode_images(vqgan.encode_images(part)) for part in real.test.split(500)])
    rows.append(row("reconstructed", rebuilt, real.test_labels))
    for scale in options.scales:
        for seed in range(options.seeds):
            x = drawn(pipeline, options, scale, seed, labels=labels)
            pixels = torch.cat([vqgan.decode_images(part) for part in x.split(500)])
            rows.append(row("drawn", pixels, labels, scale=scale, seed=seed))
    return [row | about_draws(pipeline, options) for row in rows]


# ---- cost -----------------------------------------------------------------------------------------------------------


def cost(options: argparse.Namespace) -> list[Row]:
    """A row for each repetition: seconds of a step with scale 1 and with scale 2, and their ratio."""
    pipeline = usd3.Pipeline.from_pretrained(options.run)

    def seconds(scale: float) -> float:
        began = time.perf_counter()
        drawn(pipeline, options, scale, 0, where=options.where, num=options.num)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / float(options.steps)

    seconds(1), seconds(2)
    rows = []
    for repeat in range(options.seeds):
        plain, guided = seconds(1), seconds(2)
        rows.append(
            shown({"repeat": repeat, "num": options.num, "plain_s": plain, "guided_s": guided, "ratio": guided / plain})
        )
    ratios = [row["ratio"] for row in rows]
    print(f"median ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
    return [row | about_draws(pipeline, options) for row in rows]


# ---- picture --------------------------------------------------------------------------------------------------------


def draw_curve(rows: list[Row], quality: tuple[str, str], distance: tuple[str, str], path: Path) -> None:
    """Draw the share that a judge takes for the class against the distance to real objects, a point for each draw."""
    figure = new_figure(6, 4)
    axes = figure.subplots()
    drawn = [row for row in rows if row["what"] == "drawn"]
    scales = sorted({row["scale"] for row in drawn})
    means = [
        tuple(statistics.mean(row[key] for row in drawn if row["scale"] == scale) for key in (distance[0], quality[0]))
        for scale in scales
    ]
    axes.plot(*zip(*means), color="#0072B2", linewidth=1.4)
    axes.plot([row[distance[0]] for row in drawn], [row[quality[0]] for row in drawn], "o", color="#0072B2")
    for row in rows:
        if row["what"].startswith("held-out"):
            y = row[quality[0]]
            axes.axhline(y, color="#9AA5B1", linewidth=1.2, linestyle="--")
            below = y > 0.5  # where there is more room
            axes.annotate(
                row["what"],
                (0.99, y),
                xycoords=("axes fraction", "data"),
                xytext=(0, -3 if below else 1),
                textcoords="offset points",
                ha="right",
                va="top" if below else "bottom",
                color=SOFT_INK,
            )
    axes.set_xlabel(distance[1], color=SOFT_INK)
    axes.set_ylabel(quality[1], color=SOFT_INK)
    axes.set_ylim(-0.03, 1.06)
    style(axes)
    marks = [[(row[distance[0]], row[quality[0]])] for row in drawn]
    write_labels(axes, [Label(f"{s:g}", (x, y), INK) for s, (x, y) in zip(scales, means)], [means, *marks], 9)
    save(figure, path)


# ---- shared ---------------------------------------------------------------------------------------------------------


def drawn(pipeline: usd3.Pipeline, options: argparse.Namespace, scale: float, seed: int, **what: Any) -> Tensor:
    """Objects drawn with a scale of guidance."""
    how = {"num_steps": options.steps, "sampler": options.sampler, "batch_size": options.batch_size}
    return pipeline.sample(guidance_scale=scale, seed=seed, **how, **what)


def shown(row: Row) -> Row:
    """The row, which is printed."""
    print(
        ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()),
        flush=True,
    )
    return row


def about_draws(pipeline: usd3.Pipeline, options: argparse.Namespace) -> Row:
    """How everything was drawn, and on which machine."""
    sampler = options.sampler or pipeline.method.samplers[0]
    trained = {
        "training_steps": pipeline.config.steps,
        "parameters": sum(p.numel() for p in pipeline.model.parameters()),
    }
    return {"steps": options.steps, "sampler": sampler, **trained, **machine(pipeline.device)}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = made.add_subparsers(dest="command", required=True)
    for name, num in (("promoters", 1000), ("images", 1000), ("cost", 64)):
        one = commands.add_parser(name)
        one.add_argument("run", help="the folder of the model")
        one.add_argument("--num", type=int, default=num, help="objects for each scale and seed (default: %(default)s)")
        one.add_argument("--seeds", type=int, default=3, help="repetitions (default: %(default)s)")
        one.add_argument("--steps", type=int, default=64, help="sampling steps (default: %(default)s)")
        one.add_argument("--sampler", help="by default that of the model")
        one.add_argument("--batch_size", type=int, help="by default chosen by memory")
        one.add_argument("--csv", type=Path, default=Path(f"benchmarks/results/guidance_{name}.csv"))
        if name != "cost":
            one.add_argument("--scales", type=float, nargs="+", default=SCALES)
    commands.choices["promoters"].add_argument("--promoters", required=True, help="FASTA file of the class promoter")
    commands.choices["promoters"].add_argument("--others", required=True, help="FASTA file of the class none")
    for name in ("vqgan", "judge", "images"):
        commands.choices["images"].add_argument(f"--{name}", required=True)
    commands.choices["cost"].add_argument("--where", required=True, help="a condition, as in label=promoter")
    return made


def main() -> None:
    """Measure, print and write a CSV file."""
    options = parser().parse_args()
    measured: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
        "promoters": promoters,
        "images": images,
        "cost": cost,
    }
    rows = measured[options.command](options)
    if options.command in CURVES:
        draw_curve(rows, *CURVES[options.command], options.csv.with_suffix(".png"))
    head = list(dict.fromkeys(key for row in rows for key in row))
    with written_whole(options.csv) as part, part.open("w", newline="") as file:
        table = csv.DictWriter(file, head)
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
