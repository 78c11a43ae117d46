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
from usd3.training.images import FitConfig, ImageTraining, channels_last, fit_images, write_results
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
        restart_after: steps without use after which a code restarts at a random output of the encoder; null: never.
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

    Before the GAN begins, its discriminator costs nothing. From then on each step is two: one of the VQGAN, and one of
    the discriminator on the same images and their reconstructions. The weight of the GAN's loss rises from 0.
    """

    names = ("loss", "l1", "codebook", "perceptual", "gan", "perplexity", "discriminator", "logit_gap")
    on_screen = ("loss", "l1", "perplexity")
    must_be_finite = names
    config: VQGANConfig

    def __init__(self, config: VQGANConfig, images: Images):
        super().__init__(config, images)
        self.discriminator = channels_last(Discriminator(config.discriminator_width))
        # in a tuple, so that it is no part of the module: it is neither trained nor saved
        self._perceptual = (load_perceptual(config.perceptual, config.lpips),)
        kind = "none" if self.perceptual is None else self.perceptual.name
        self._perceptual_facts: dict[str, str] = {"perceptual": kind}
        if kind == "classifier" and config.perceptual is not None:
            # now, as the folder may change while the VQGAN is trained
            self._perceptual_facts["perceptual_fingerprint"] = fingerprint(config.perceptual)
        self._restored: dict[str, Any] | None = None
        # in parts, so that little is left to compile when the GAN begins
        self._reconstruct = self.compiled(self._eager_reconstruct)
        self._fool = self.compiled(self._eager_fool)
        self._judge = self.compiled(self._eager_judge)
        self._discriminator_step: WholeStep | None = None

    @staticmethod
    def network(config: VQGANConfig, images: Images) -> VQGAN:
        """The VQGAN; it refuses images whose sides it cannot halve."""
        model = config.build()
        model.require_size(images.train)
        return model

    @property
    def perceptual(self) -> Perceptual | None:
        """The perceptual distance, where there is one."""
        return self._perceptual[0]

    def description(self) -> dict[str, Any]:
        """Also which perceptual loss it was."""
        return {**super().description(), **self._perceptual_facts}

    # ---- optimisers --------------------------------------------------------------------------------------------------

    def new_optimisers(self) -> list[torch.optim.Optimizer]:
        """Adam for the VQGAN and for the discriminator, with the paper's averages."""
        settings: dict[str, Any] = {"lr": self.config.lr, "betas": (0.0, 0.99), "fused": self.fused}
        return [torch.optim.Adam(net.parameters(), **settings) for net in (self.model, self.discriminator)]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Lightning knows of the first."""
        first, self._discriminator_optimiser = self.new_optimisers()
        return first

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """The optimisers of the VQGAN and of the discriminator."""
        return [*super().optimisers(), self._discriminator_optimiser]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the optimiser of the discriminator."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["discriminator_optimizer"] = self._discriminator_optimiser.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the state of the discriminator's optimiser until that is made."""
        super().on_load_checkpoint(checkpoint)
        self._restored = checkpoint["discriminator_optimizer"]

    # ---- steps -------------------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Begin without the GAN."""
        if self._restored is not None:
            self._discriminator_optimiser.load_state_dict(self._restored)
        super().on_train_start()
        if self.perceptual is not None:
            channels_last(self.perceptual).to(self.device)
        shape = (2 * self.config.batch_size, *self.pixels.shape[1:])
        pair = torch.zeros(shape, device=self.device)
        # CUDA graphs read both at their addresses
        self._pair, self._gan_weight = pair.to(memory_format=torch.channels_last), torch.zeros((), device=self.device)
        self._last_gan_weight, self._not_judged = 0.0, torch.zeros(2, device=self.device)
        self._step = self._generator_step()

    def on_train_end(self) -> None:
        """Free the memory of both CUDA graphs."""
        self._discriminator_step = None
        super().on_train_end()

    def train_on_images(self, images: Tensor, labels: Tensor | None, progress: float) -> Tensor:
        """A step of the VQGAN, and once the GAN has begun one of the discriminator."""
        since_start = progress - self.config.gan_start
        if self.config.gan_weight > 0 and since_start >= 0:
            if self._discriminator_step is None:
                self._begin_gan()
            self._set_gan_weight(self.config.gan_weight * min(1.0, since_start / _RAMP))
        assert self._step is not None
        numbers = self._step({"images": images})[1]
        judge = self._discriminator_step
        judged = self._not_judged if judge is None else judge({"pair": self._pair})[1]
        return torch.cat([numbers, judged])

    def _begin_gan(self) -> None:
        """Make the step of the discriminator, and another one of the VQGAN; the graph of the old one goes."""
        weights = self.discriminator.parameters()
        self._discriminator_step = self.whole_step(self._discriminator_loss, weights, self._discriminator_optimiser)
        self._step = self._generator_step()

    def _set_gan_weight(self, weight: float) -> None:
        """Write the weight to the device where it changes."""
        if weight != self._last_gan_weight:
            self._gan_weight.fill_(weight)
            self._last_gan_weight = weight

    def _generator_step(self) -> WholeStep:
        return self.whole_step(self._generator_loss, self.model.parameters(), self.optimisers()[0])

    def _generator_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the VQGAN and its parts; with a GAN, images and reconstructions go to the discriminator."""
        self.discriminator.requires_grad_(False)  # this step does not train it
        real = self.augmented(batch["images"])
        fake, loss, parts, perplexity = self._reconstruct(real)
        gan = torch.zeros((), device=real.device)
        if self._discriminator_step is not None:
            gan = self._fool(fake)
            loss = loss + self._gan_weight * gan
            self._pair[: len(real)].copy_(real)
            self._pair[len(real) :].copy_(fake.detach())
        return loss, torch.stack([part.detach().float() for part in (loss, *parts, gan, perplexity)])

    def _eager_reconstruct(self, real: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor], Tensor]:
        """The reconstructions, the loss without the GAN, its parts, and the perplexity of the tokens."""
        fake, codebook, perplexity = self.model(real)
        l1 = (fake - real).abs().mean()
        looks = torch.zeros((), device=real.device) if self.perceptual is None else self.perceptual(fake, real)
        return fake, l1 + codebook + self.config.perceptual_weight * looks, (l1, codebook, looks), perplexity

    def _eager_fool(self, fake: Tensor) -> Tensor:
        """The GAN's loss of the VQGAN: how far reconstructions are from passing as real."""
        logits: Tensor = self.discriminator(fake)
        return -logits.mean()

    def _discriminator_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        self.discriminator.requires_grad_(True)
        return self._judge(batch["pair"])  # type: ignore[no-any-return]

    def _eager_judge(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """The hinge loss of the discriminator; how far apart its logits are."""
        real, fake = self.discriminator(pair).chunk(2)
        loss = 0.5 * (F.relu(1 - real).mean() + F.relu(1 + fake).mean())
        return loss, torch.stack([loss.detach(), (real.mean() - fake.mean()).detach()])


def train_vqgan(
    config: VQGANConfig, folder: Path | str, images: Images | None = None, resume: bool = False, progress: bool = True
) -> VQGAN:
    """Train a VQGAN in a folder; afterwards write results.json, the errors of its reconstructions, and a picture."""
    images = fit_images(config, VQGANTraining, folder, images, resume, progress)
    vqgan = load_vqgan(folder, "cpu" if config.accelerator == "cpu" else None)
    kind = about(folder, "vqgan")["perceptual"]
    write_results(folder, {"perceptual": kind, **reconstruction_report(vqgan, images, progress=progress)})
    _picture(vqgan, images, Path(folder))
    return vqgan


def _picture(vqgan: VQGAN, images: Images, folder: Path) -> None:
    originals = spread(images.test, 16)
    reconstruction_grid(originals, vqgan.decode_images(vqgan.encode_images(originals)), folder / "reconstructions.png")
