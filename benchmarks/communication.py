"""What a training step of a language model spends on communication, calculated: nothing here is measured.

    python benchmarks/communication.py

The model is that of the recipe `text-large`. With `ddp` every GPU adds up the gradients of all, an all-reduce; with
`fsdp` it collects the weights twice, before the forward and before the backward pass of each layer, and the gradients
are added up and scattered. A ring over n GPUs moves (n - 1) / n of the bytes through each GPU for a scatter or a
gather, and twice that for an all-reduce. Between machines, each GPU of a machine has the same part of the gradients
and sends it through a network card of its own.

Assumptions, each an option: NVLink of 450 GB/s a direction for each GPU (H200), a network card of 400 Gbit/s for each,
80 % of either reached; gradients and weights travel in float32; a GPU does 40 % of the 989 TFLOP/s that an H200 has in
bfloat16. The share is what a step would spend if nothing overlapped. What cannot overlap under ddp is the gradient of
the embedding: it is ready last.
"""

import argparse
from dataclasses import dataclass

import torch

from usd3._internal.tables import Table
from usd3.training.recipes import recipe_from

BYTES = 4  # of a weight or a gradient


@dataclass(frozen=True)
class Cluster:
    """Machines with some GPUs each.

    Args:
        gpus: of a machine.
        machines: how many.
        link: bytes a second that a GPU sends to another one of its machine.
        card: bytes a second that a GPU sends to another machine.
    """

    gpus: int
    machines: int
    link: float
    card: float

    def gather(self, size: float) -> float:
        """Seconds until every GPU has all of `size` bytes, of which each has its part; a scatter takes the same."""
        inside = (self.gpus - 1) / self.gpus * size / self.link
        between = (self.machines - 1) / self.machines * size / self.gpus / self.card
        return inside + between

    def all_reduce(self, size: float) -> float:
        """Seconds until every GPU has the sum of all: a scatter, then a gather."""
        return 2 * self.gather(size)


@dataclass(frozen=True)
class Model:
    """Sizes of a language model.

    Args:
        weights: all parameters.
        embedding: those of the embedding, which take no arithmetic.
        width: of the network.
        depth: number of layers.
        length: elements of an object.
    """

    weights: int
    embedding: int
    width: int
    depth: int
    length: int

    def flops(self, elements: int) -> float:
        """Floating-point operations of a step: forward and backward, products of matrices alone."""
        attention = 12 * self.length * self.width * self.depth
        return elements * (6.0 * (self.weights - self.embedding) + attention)


def of_recipe(name: str) -> tuple[Model, int]:
    """The model of a packaged recipe of texts, and the objects of a step."""
    recipe = recipe_from([name])
    vocabulary, length = recipe.data.text.vocabulary, recipe.data.length
    process = recipe.diffusion.build(vocabulary)
    with torch.device("meta"):  # sizes without memory
        net = recipe.model.build(process, [length])
    weights = sum(weight.numel() for weight in net.parameters())
    embedding = (vocabulary + 1) * recipe.model.dim  # with the mask
    return Model(weights, embedding, recipe.model.dim, recipe.model.depth, length), recipe.training.batch_size


def rows(model: Model, objects: int, clusters: list[Cluster], flops: float) -> list[list[str]]:
    """A row for each cluster: milliseconds of arithmetic, of ddp and of fsdp, and what they add to a step.

    Args:
        model: its sizes.
        objects: of a step, for each GPU.
        clusters: to compare.
        flops: operations a second of a GPU.
    """
    size, last = BYTES * model.weights, BYTES * model.embedding
    work = 1000 * model.flops(objects * model.length) / flops
    found = []
    for cluster in clusters:
        ddp, left = 1000 * cluster.all_reduce(size), 1000 * cluster.all_reduce(last)
        fsdp = 1000 * 3 * cluster.gather(size)
        shares = [f"{part / (work + part):.1%}" for part in (ddp, left, fsdp)]
        name = f"{cluster.machines} x {cluster.gpus}"
        found.append([name, *(f"{ms:.2f}" for ms in (work, ddp, left, fsdp)), *shares])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="text-large", help="a packaged recipe of texts (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=8, help="of a machine (default: %(default)s)")
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 2, 8], help="(default: 1 2 8)")
    parser.add_argument("--link", type=float, default=450.0, help="GB/s a direction (default: %(default)s)")
    parser.add_argument("--card", type=float, default=50.0, help="GB/s (default: %(default)s)")
    parser.add_argument("--reached", type=float, default=0.8, help="of the links and cards (default: %(default)s)")
    parser.add_argument("--tflops", type=float, default=0.4 * 989, help="of a GPU (default: %(default)s)")
    given = parser.parse_args()
    model, objects = of_recipe(given.recipe)
    link, card = (1e9 * given.reached * speed for speed in (given.link, given.card))
    clusters = [Cluster(given.gpus, machines, link, card) for machines in given.machines]
    head = ["machines x GPUs", "arithmetic, ms", "ddp, ms", "of them at the end", "fsdp, ms"]
    head += ["share of ddp", "of its end", "share of fsdp"]
    each = objects // given.gpus
    print(f"{given.recipe}: {model.weights:,} parameters; {each} objects of {model.length} elements a GPU and step")
    print(Table(head, [rows(model, each, clusters, 1e12 * given.tflops)]).markdown())


if __name__ == "__main__":
    main()
