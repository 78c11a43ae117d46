"""The categories of a melody: at each sixteenth note the MIDI pitch that sounds, or a rest."""

__all__ = ["MELODY_CLASSES", "REST"]

REST = 128
MELODY_CLASSES = 129
