"""Where image tokens come from."""

from dataclasses import dataclass

from usd3._internal.checks import require

__all__ = ["ImageSource"]


@dataclass(frozen=True)
class ImageSource:
    """Where tokens come from.

    Args:
        vqgan: folder of the VQGAN that made them.
        images: path of the images.
        flips: whether the tokens of all training images are followed by those of the mirrored images.
        fingerprint: the fingerprint of the VQGAN's weights; None: unknown.
    """

    vqgan: str
    images: str
    flips: bool = False
    fingerprint: str | None = None

    def require_same_vqgan(self, other: "ImageSource | None", name: str) -> None:
        """Raise an error if `other`, the source of tokens called `name`, has another VQGAN: its tokens differ."""
        if other is not None and None not in (self.fingerprint, other.fingerprint):
            same, expected = self.fingerprint == other.fingerprint, f"those of {self.vqgan} ({self.fingerprint})"
            require(same, name, f"tokens of the VQGAN {other.vqgan} ({other.fingerprint})", expected)
