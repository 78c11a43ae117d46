"""Chorales on the studio's page: a piano roll with four voices, which may end before the roll does."""

from collections.abc import Sequence

from torch import Tensor

from usd3.kinds.base import Kind
from usd3.kinds.chorale.notation import RANGES, VOICES, voices_named
from usd3.kinds.melody.notation import REST
from usd3.kinds.melody.page import RollPage, Voice
from usd3.kinds.page import FromPage
from usd3.kinds.rendering import Request

__all__ = ["ChoralePage"]


class ChoralePage(RollPage):
    """A piano roll of soprano, alto, tenor and bass. Where all voices rest up to the end, the chorale has ended.

    Args:
        kind: the kind.
        request: the options of renderers.
    """

    def __init__(self, kind: Kind, request: Request):
        super().__init__(kind, request, [Voice(name, *pitches) for name, pitches in zip(VOICES, RANGES, strict=True)])

    def pad(self, prompt: FromPage) -> Tensor | None:
        """True from the step on after which all voices are given as rests; None: all chorales go on to the end."""
        rests = (prompt.given & (prompt.tokens == REST)).all(2)  # (N, T)
        ended = rests.flip(1).cumprod(1).flip(1).bool()
        ended &= ~ended.all(1, keepdim=True)  # nothing but rests: no chorale that has ended
        return ended[..., None].expand_as(prompt.tokens) if bool(ended.any()) else None

    def voices_called(self, names: Sequence[str]) -> Sequence[int]:
        """The voices that the tracks are called, such as "Tenor"; without such names the first track is the soprano."""
        return voices_named(names) or super().voices_called(names)
