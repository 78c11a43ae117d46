"""Training of a VQGAN."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import as_count, as_number
from usd3.kinds.image.discriminator import Discriminator
from usd3.kinds.image.folders import about, fingerprint, load_vqgan
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.perceptual import Perceptual, load_perceptual
from usd3.kinds.image.reports import reconstruction_report
from usd3.kinds.image.vqgan import VQGAN
from usd3.pictures import reconstruction_grid
from usd3.training.images import FitConfig, ImageTraining, channels_last, fit, write_results
from usd3.training.step import Batch, WholeStep

__all__ = ["VQGANConfig", "VQGANTraining", "train_vqgan"]

_RAMP = 0.05  # the part of the run in which the weight of the GAN rises: the discriminator learns first


@dataclass
class VQGANConfig(FitConfig):
    """A VQGAN and how it is trained; the defaults are the paper's.

    Args:
        num_codes: how many tokens there are.
        code_dim: length of a code.
        filters: channels of each stage; each stage but the first halves the sides of an image.
        blocks: residual blocks of a stage.
        codebook: "ema" (codes are moving averages) or "gradient" (codes are weights with a loss of their own).
        commitment: weight of the loss that pulls the encoder towards the codes.
        restart_after: steps without use after which a code starts anew at a random output of the encoder; null: never.
        perceptual: what images look like: a folder that `usd3 classifier` made, or a file with the weights of
            torchvision's VGG16; null: no perceptual loss.
        lpips: a file with LPIPS' linear weights for that VGG16, unless the same file has them; null: none.
        perceptual_weight: weight of the perceptual loss.
        gan_weight: weight of the GAN's loss; 0: no GAN.
        gan_start: the part of the run after which the GAN begins.
        discriminator_width: channels of the discriminator's first layer.
    """

    num_codes: int = 512
    code_dim: int = 256
    filters: list[int] = field(default_factory=lambda: [64, 128, 256])
    blocks: int = 2
    codebook: Literal["ema", "gradient"] = "ema"
    commitment: float = 0.25
    restart_after: int | None = 100
    perceptual: str | None = None
    lpips: str | None = None
    perceptual_weight: float = 0.1
    gan_weight: float = 0.1
    gan_start: float = 0.2
    discriminator_width: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("perceptual_weight", "gan_weight"):
            as_number(getattr(self, name), name, 0, closed=True)
        as_number(self.gan_start, "gan_start", 0, 1, closed=True)
        as_count(self.discriminator_width, "discriminator_width", 1)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The sizes of both networks."""
        return "num_codes", "code_dim", "filters", "blocks", "codebook", "discriminator_width", "seed"

    def build(self) -> VQGAN:
        """The network, untrained."""
        return VQGAN(
            self.num_codes,
            self.code_dim,
            self.filters,
            self.blocks,
            self.codebook,
            self.commitment,
            self.restart_after,
        )


class VQGANTraining(ImageTraining):
    """L1, the codebook's losses, a perceptual distance, and after a while a GAN with a hinge loss.

    Before the GAN begins its discriminator costs nothing. From then on each step is two: one of the VQGAN, and one of
    the discriminator on the images and reconstructions that this had. The weight of the GAN's loss rises from 0.
    """

    names = ("loss", "l1", "codebook", "perceptual", "gan", "perplexity", "discriminator", "logit_gap")
    on_screen = ("loss", "l1", "perplexity")
    config: VQGANConfig

    def __init__(self, config: VQGANConfig, images: Images):
        model = config.build()
        model.require_size(images.train)
        super().__init__(model, config, images)
        self.discriminator = channels_last(Discriminator(config.discriminator_width))
        # no part of the module: it is neither trained nor saved
        self._perceptual = (load_perceptual(config.perceptual, config.lpips),)
        seen_by = config.perceptual if self.perceptual is not None and self.perceptual.kind == "classifier" else None
        # now, as the folder may change while the VQGAN is trained
        self._perceptual_told = {} if seen_by is None else {"perceptual_fingerprint": fingerprint(seen_by)}
        self._restored: dict[str, Any] | None = None
        # in parts, so that little is left to compile when the GAN begins
        self._reconstructed = self.compiled(self._eager_reconstructed)
        self._fooled = self.compiled(self._eager_fooled)
        self._judged = self.compiled(self._eager_judged)
        self._generate: WholeStep | None = None
        self._judge: WholeStep | None = None

    @property
    def perceptual(self) -> Perceptual | None:
        """The distance, where there is one."""
        return self._perceptual[0]

    def told(self) -> dict[str, Any]:
        """Which perceptual loss it was, too."""
        kind = "none" if self.perceptual is None else self.perceptual.kind
        return {**super().told(), "perceptual": kind, **self._perceptual_told}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam for both networks; Lightning knows of the first."""
        networks = (self.model, self.discriminator)
        mine, other = (torch.optim.Adam(net.parameters(), lr=self.config.lr, fused=self.fused) for net in networks)
        self._other = other
        return mine

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """That of the VQGAN and that of the discriminator."""
        return [*super().optimisers(), self._other]

    def settings(self) -> dict[str, Any]:
        """The paper's."""
        return {"betas": (0.0, 0.99)}

    def on_train_start(self) -> None:
        """Begin without the GAN."""
        if self._restored is not None:
            self._other.load_state_dict(self._restored)
        super().on_train_start()
        if self.perceptual is not None:
            channels_last(self.perceptual).to(self.device)
        shape = (2 * self.config.batch_size, *self.pixels.shape[1:])
        pair = torch.zeros(shape, device=self.device)
        # both have a place of their own, where graphs find them
        self._pair, self._gan_weight = pair.to(memory_format=torch.channels_last), torch.zeros((), device=self.device)
        self._weighed, self._nothing = 0.0, torch.zeros(2, device=self.device)
        self._generate = self._generator_step()

    def on_train_end(self) -> None:
        """Give back the memory of the graphs."""
        self._generate = self._judge = None
        self.zero_grad(set_to_none=True)

    def train_on(self, images: Tensor, labels: Tensor | None, done: float) -> Tensor:
        """A step of the VQGAN, and once the GAN has begun one of the discriminator."""
        started = done - self.config.gan_start
        if self.config.gan_weight > 0 and started >= 0:
            if self._judge is None:
                self._begin_gan()
            self._weigh_gan(self.config.gan_weight * min(1.0, started / _RAMP))
        assert self._generate is not None
        shown = self._generate({"images": images})[1]
        judged = self._nothing if self._judge is None else self._judge({"pair": self._pair})[1]
        return torch.cat([shown, judged])

    def _begin_gan(self) -> None:
        """From now on another step; the graph of the one before goes."""
        self._judge = self.whole_step(self._judging_loss, list(self.discriminator.parameters()), self._other)
        self._generate = self._generator_step()

    def _weigh_gan(self, weight: float) -> None:
        """Write the weight to the device where it changes."""
        if weight != self._weighed:
            self._gan_weight.fill_(weight)
            self._weighed = weight

    def _generator_step(self) -> WholeStep:
        return self.whole_step(self._generator_loss, list(self.model.parameters()), self.optimisers()[0])

    def _generator_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the VQGAN and its parts; with a GAN, images and reconstructions go where that finds them."""
        self.discriminator.requires_grad_(False)  # its gradients are none of this step's
        real = self.augmented(batch["images"])
        fake, loss, parts, perplexity = self._reconstructed(real)
        gan = torch.zeros((), device=real.device)
        if self._judge is not None:
            gan = self._fooled(fake)
            loss = loss + self._gan_weight * gan
            self._pair[: len(real)].copy_(real)
            self._pair[len(real) :].copy_(fake.detach())
        return loss, torch.stack([part.detach().float() for part in (loss, *parts, gan, perplexity)])

    def _eager_reconstructed(self, real: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor], Tensor]:
        """The reconstructions, the loss without the GAN, its parts, and the perplexity of the tokens."""
        fake, codebook, perplexity = self.model(real)
        l1 = (fake - real).abs().mean()
        looks = torch.zeros((), device=real.device) if self.perceptual is None else self.perceptual(fake, real)
        return fake, l1 + codebook + self.config.perceptual_weight * looks, (l1, codebook, looks), perplexity

    def _eager_fooled(self, fake: Tensor) -> Tensor:
        """How far reconstructions are from passing as real."""
        logits: Tensor = self.discriminator(fake)
        return -logits.mean()

    def _judging_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        self.discriminator.requires_grad_(True)
        return self._judged(batch["pair"])  # type: ignore[no-any-return]

    def _eager_judged(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """The hinge loss of the discriminator; how far apart its logits are."""
        real, fake = self.discriminator(pair).chunk(2)
        loss = 0.5 * (F.relu(1 - real).mean() + F.relu(1 + fake).mean())
        return loss, torch.stack([loss.detach(), (real.mean() - fake.mean()).detach()])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the other optimiser."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["discriminator_optimizer"] = self._other.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The other optimiser, for when it is there."""
        super().on_load_checkpoint(checkpoint)
        self._restored = checkpoint["discriminator_optimizer"]


def train_vqgan(
    config: VQGANConfig, folder: Path | str, images: Images | None = None, resume: bool = False, progress: bool = True
) -> VQGAN:
    """Train a VQGAN in a folder; afterwards its results.json says how well it does, and so does a picture."""
    images = fit(config, folder, lambda loaded: VQGANTraining(config, loaded), images, resume, progress)
    vqgan = load_vqgan(folder, "cpu" if config.accelerator == "cpu" else None)
    kind = about(folder, "vqgan")["perceptual"]
    write_results(folder, {"perceptual": kind, **reconstruction_report(vqgan, images, progress=progress)})
    _picture(vqgan, images, Path(folder))
    return vqgan


def _picture(vqgan: VQGAN, images: Images, folder: Path) -> None:
    some = spread(images.test, 16)
    reconstruction_grid(some, vqgan.decode_images(vqgan.encode_images(some)), folder / "reconstructions.png")
