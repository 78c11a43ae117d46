"""Where image tokens come from."""

from dataclasses import dataclass

from usd3._internal.checks import require

__all__ = ["ImageSource"]


@dataclass(frozen=True)
class ImageSource:
    """Where tokens come from: the folder of the VQGAN that made them, and the path of the images.

    `flips`: after the tokens of all training images come those of the same images mirrored.
    `fingerprint` is that of the VQGAN's weights; None: not known.
    """

    vqgan: str
    images: str
    flips: bool = False
    fingerprint: str | None = None

    def require_same_vqgan(self, other: "ImageSource | None", name: str) -> None:
        """Refuse tokens of another VQGAN, which mean something else; `name` says whose they are."""
        if other is not None and None not in (self.fingerprint, other.fingerprint):
            same, expected = self.fingerprint == other.fingerprint, f"those of {self.vqgan} ({self.fingerprint})"
            require(same, name, f"tokens of the VQGAN {other.vqgan} ({other.fingerprint})", expected)
