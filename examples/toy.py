"""Learn a known distribution over pairs of 32 categories, and compare exactly: no test set, no sampling noise.

A pair is a point of a picture, and every quantity can be enumerated: the distribution that the sampler draws from, its
cross entropy, and the bound that training minimises.

    python examples/toy.py --out toy.png
"""

import argparse
import time
from itertools import count, pairwise
from pathlib import Path

import matplotlib
import torch
from torch import Tensor, nn

import usd3

matplotlib.use("Agg")
import matplotlib.pyplot as plt

K = 32
STATES = torch.cartesian_prod(torch.arange(K), torch.arange(K))  # (K * K, 2)


def true_distribution() -> Tensor:
    """Two interleaved spiral arms, (K, K), with probability 0 outside them."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, K, dtype=torch.float64)] * 2, indexing="ij")
    radius, angle = torch.hypot(x, y), torch.atan2(y, x)
    arm = torch.cos(2 * angle - 9 * radius)
    weight = torch.where((arm > 0.2) & (radius > 0.15) & (radius < 0.98), arm * torch.exp(-radius), 0.0)
    return weight / weight.sum()


class Network(nn.Module):
    """Any callable (x_t, t) -> logits will do; this one is a small MLP."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.embed = nn.Embedding(2 * K, width // 2)
        self.layers = nn.Sequential(
            nn.Linear(width + 16, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * K)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Logits (B, 2, K)."""
        frequencies = 2.0 ** torch.arange(8) * t[:, None]
        tokens = self.embed(x + torch.tensor([0, K])).flatten(1)
        logits: Tensor = self.layers(torch.cat([tokens, frequencies.sin(), frequencies.cos()], 1))
        return logits.reshape(-1, 2, K)


def train(d: usd3.Diffusion, truth: Tensor, steps: int, batch: int, seed: int) -> Network:
    """Draw data from the truth and minimise the USD3 objective."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = Network()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    start = time.time()
    for step in range(1, steps + 1):
        index = torch.multinomial(truth.flatten(), batch, replacement=True, generator=generator)
        out = d.loss(model, STATES[index], generator=generator, stratified=True)
        optimiser.zero_grad(set_to_none=True)
        out.loss.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step:5d}/{steps}   vlb {float(out.vlb):6.3f} nats   {time.time() - start:5.1f} s", flush=True)
    return model


@torch.no_grad()
def enumerate_sampler(d: usd3.Diffusion, model: nn.Module, truth: Tensor, times: list[float]) -> tuple[Tensor, float]:
    """The distribution (K, K) that `d.sample(model, ..., times)` draws from, and its bound, by enumeration."""
    m = d.noise.probs
    drawn = torch.outer(m, m)
    prior = d.prior(torch.arange(K)[:, None], times[0])[:, 0]  # of each clean category
    bound = float(((truth.sum(0) + truth.sum(1)) * prior).sum())
    x_t = STATES.repeat_interleave(K, 0)  # every object with every clean category of one element
    x_0 = torch.arange(K).repeat(K * K)[:, None].expand(-1, 2)
    for t, s in pairwise(times):
        logits = model(STATES, torch.full((K * K,), t))
        q = d.q_probs(torch.arange(K)[:, None], t)[:, 0]  # [x_0, x_t] of one element
        terms = d.loss_terms(logits.repeat_interleave(K, 0), x_t, x_0, t, s).vlb.reshape(K, K, K, 2)
        noisy = q.T @ truth  # q(x_t^1, x_0^2)
        bound += float((torch.einsum("va,vw,wb->abv", q, truth, q) * terms[..., 0]).sum())
        bound += float((torch.einsum("aw,wb->abw", noisy, q) * terms[..., 1]).sum())
        probs = d.backward(logits, STATES, t, s).probs().double().reshape(K, K, 2, K)
        drawn = torch.einsum("ab,abi,abj->ij", drawn, probs[:, :, 0], probs[:, :, 1])
    return drawn, bound


def free_name(path: Path) -> Path:
    """`path`, or the first of path-1, path-2, ... that does not exist: nothing is overwritten."""
    numbered = (path.with_stem(f"{path.stem}-{i}") for i in count(1))
    return path if not path.exists() else next(name for name in numbered if not name.exists())


def main() -> None:
    """Train, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="objects per step (default: %(default)s)")
    parser.add_argument("--sampling-steps", type=int, default=64, help="steps of the sampler (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of data, noise and weights (default: %(default)s)")
    parser.add_argument("--out", default="toy.png", help="picture to write (default: %(default)s)")
    args = parser.parse_args()

    truth = true_distribution()
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    model = train(d, truth, args.steps, args.batch, args.seed)
    learned, bound = enumerate_sampler(d, model, truth, torch.linspace(1, 0, args.sampling_steps + 1).tolist())

    entropy = -float(torch.xlogy(truth, truth).sum())
    cross_entropy = -float(torch.xlogy(truth, learned).sum())
    distance = 0.5 * float((truth - learned).abs().sum())
    print(f"true entropy                          {entropy:.4f} nats")
    print(f"cross entropy of the learned sampler  {cross_entropy:.4f} nats   (exact, {args.sampling_steps} steps)")
    print(f"its bound                             {bound:.4f} nats   (exact)")
    print(f"uniform guess                         {2 * torch.log(torch.tensor(K)):.4f} nats")
    print(f"total variation, learned to true      {distance:.4f}")

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.8), layout="constrained")
    drawn = d.sample(model, (4000, 2), args.sampling_steps, generator=torch.Generator().manual_seed(args.seed))
    samples = torch.bincount(drawn[:, 0] * K + drawn[:, 1], minlength=K * K).reshape(K, K) / len(drawn)
    titles = ("true", f"learned, total variation {distance:.3f}", "4000 samples")
    for axis, title, image in zip(axes, titles, (truth, learned, samples)):
        axis.imshow(image.numpy(), cmap="magma", vmax=float(truth.max()))
        axis.set(title=title, xticks=[], yticks=[], xlabel="second category")
    axes[0].set_ylabel("first category")
    out = free_name(Path(args.out))
    figure.savefig(out, dpi=150)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
