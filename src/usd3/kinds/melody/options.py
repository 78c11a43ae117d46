"""The options of melodies: how samples are written."""

from dataclasses import dataclass

__all__ = ["MelodyOptions"]


@dataclass
class MelodyOptions:
    """How melodies are written.

    Args:
        tempo: beats per minute of the MIDI files.
    """

    tempo: int = 100
