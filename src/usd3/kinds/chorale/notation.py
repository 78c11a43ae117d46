"""The voices of a chorale and their ranges."""

from collections.abc import Sequence

__all__ = ["RANGES", "VOICES", "voices_named"]

VOICES = ("Soprano", "Alto", "Tenor", "Bass")
"""From high to low: the order of an object's columns."""

RANGES = ((60, 81), (53, 74), (48, 69), (36, 64))
"""The lowest and the highest MIDI pitch of each voice: C4-A5, F3-D5, C3-A4 and C2-E4, as in Bach's chorales."""

_PARTS = ("sopran", "alt", "tenor", "bass")  # what the name of a track or part has in it, in lower case


def voices_named(names: Sequence[str]) -> list[int] | None:
    """The numbers of the voices that tracks or parts with these names are; None: the names do not say it."""
    found = [[v for v, part in enumerate(_PARTS) if part in name.lower()] for name in names]
    named = [voices[0] for voices in found if len(voices) == 1]
    return named if len(set(named)) == len(names) > 0 else None
