"""The voices of a chorale and their ranges."""

__all__ = ["RANGES", "VOICES"]

VOICES = ("Soprano", "Alto", "Tenor", "Bass")
"""From high to low: the order of an object's columns."""

RANGES = ((60, 81), (53, 74), (48, 69), (36, 64))
"""The lowest and the highest MIDI pitch of each voice: C4-A5, F3-D5, C3-A4 and C2-E4, as in Bach's chorales."""
