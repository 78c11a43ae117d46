"""Transposition of training chorales into other keys."""

import torch
from torch import Tensor

from usd3._internal.device import moved_to
from usd3.kinds.base import Augment
from usd3.kinds.chorale.notation import RANGES
from usd3.kinds.melody.notation import REST

__all__ = ["transposer"]


def transposer(most: int, decode: Tensor | None = None, device: torch.device | str = "cpu") -> Augment:
    """A function that moves all voices of each chorale of a batch by one random number of semitones.

    It is any of those, up to `most` up or down, with which every voice stays in its range, all equally likely. Silence
    and padding stay.

    Args:
        most: the largest number of semitones, up or down.
        decode: (129,) the pitch or silence of each token; None: tokens are pitches and silence.
        device: where the batches are.
    """
    decode = None if decode is None else decode.to(device).long()
    encode = None if decode is None else decode.argsort()
    lowest, highest = torch.tensor(RANGES, device=device).unbind(-1)  # (V,)

    def transpose(tokens: Tensor, pad: Tensor | None, generator: torch.Generator) -> Tensor:
        pitches = tokens.long() if decode is None else decode[tokens.long()]
        sounding = (pitches < REST) if pad is None else (pitches < REST) & ~pad
        down, up = (
            torch.where(sounding, room, most).flatten(1).amin(1).clamp(0, most)
            for room in (pitches - lowest, highest - pitches)
        )
        u = moved_to(torch.rand(len(tokens), generator=generator), tokens.device)
        shift = (u * (down + up + 1)).floor().long() - down
        moved = torch.where(sounding, pitches + shift[:, None, None], pitches)
        return moved if encode is None else encode[moved]

    return transpose
