"""Chorales in four voices: Bach's, arrays of them, and MIDI files of four tracks."""
