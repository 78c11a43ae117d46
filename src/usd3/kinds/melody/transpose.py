"""Transposition of training melodies into other keys."""

import torch
from torch import Tensor

from usd3._internal.device import moved_to
from usd3.kinds.base import Augment
from usd3.kinds.melody.notation import REST

__all__ = ["transposer"]


def transposer(most: int, decode: Tensor | None = None, device: torch.device | str = "cpu") -> Augment:
    """A function that moves each melody of a batch by a random number of semitones.

    It moves a melody only as far as its pitches stay in 0..127. Rests and padding stay.

    Args:
        most: the largest number of semitones, up or down.
        decode: (129,) the pitch or rest of each token; None: tokens are pitches and rests.
        device: where the batches are.
    """
    decode = None if decode is None else decode.to(device).long()
    encode = None if decode is None else decode.argsort()

    def transpose(tokens: Tensor, pad: Tensor | None, generator: torch.Generator) -> Tensor:
        pitches = tokens.long() if decode is None else decode[tokens.long()]
        sounding = (pitches < REST) if pad is None else (pitches < REST) & ~pad
        lowest = torch.where(sounding, pitches, REST - 1).amin(1)
        highest = torch.where(sounding, pitches, 0).amax(1)
        shift = moved_to(torch.randint(-most, most + 1, (len(tokens),), generator=generator), tokens.device)
        shift = torch.minimum(torch.maximum(shift, -lowest), REST - 1 - highest)
        moved = torch.where(sounding, pitches + shift[:, None], pitches)
        return moved if encode is None else encode[moved]

    return transpose
