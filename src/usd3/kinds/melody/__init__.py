"""Melodies: Bach's works, MIDI files, POP909 and Lakh."""
