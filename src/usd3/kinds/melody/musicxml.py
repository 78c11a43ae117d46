"""A small reader of MusicXML: the melodies of a score on a grid.

Each voice of each part is one melody. Of a chord, the highest note counts. Grace notes, cue notes and unpitched notes
are ignored. Repeats are not played again. A note fills the grid points from its onset to its end: tied notes need no
special care, and a note between two grid points is lost.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.melody.notation import REST

__all__ = ["melodies_of", "read_score"]

_STEPS_PER_BEAT = 4
_SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


@dataclass(frozen=True)
class _Note:
    voice: str
    onset: Fraction  # in quarter notes, from the start of its measure
    end: Fraction
    pitch: int


class _Measure(NamedTuple):
    notes: list[_Note]
    length: Fraction  # the latest time that any voice reaches
    written: Fraction  # the same without <forward>, which may fill a short last measure


@dataclass
class _PartReader:
    """Reads the measures of a part in order; it keeps the settings that hold until they change."""

    divisions: Fraction = Fraction(1)
    transpose: int = 0
    notes: list[_Note] = field(default_factory=list)
    voices: dict[str, None] = field(default_factory=dict)

    def measure(self, element: ElementTree.Element) -> _Measure:
        """The notes of the next measure and its length."""
        self.notes = []
        now = last_onset = furthest = written = Fraction(0)
        for child in element:
            if child.tag == "attributes":
                self._attributes(child)
            elif child.tag == "backup":
                now = max(Fraction(0), now - self._beats(child))
            elif child.tag == "forward":
                now += self._beats(child)
            elif child.tag == "note" and child.find("grace") is None:
                chord = child.find("chord") is not None
                onset = last_onset if chord else now
                end = onset + self._beats(child)
                self._sound(child, onset, end)
                now, last_onset = now if chord else end, onset
                written = max(written, end)
            furthest = max(furthest, now)
        return _Measure(self.notes, max(furthest, written), written)

    def _attributes(self, element: ElementTree.Element) -> None:
        divisions = element.findtext("divisions")
        if divisions is not None:
            self.divisions = Fraction(divisions.strip())
        shift = element.find("transpose")
        if shift is not None:
            octaves = float(shift.findtext("octave-change", "0"))
            self.transpose = round(float(shift.findtext("chromatic", "0")) + 12 * octaves)

    def _beats(self, element: ElementTree.Element) -> Fraction:
        return Fraction(element.findtext("duration", "0").strip()) / self.divisions

    def _sound(self, element: ElementTree.Element, onset: Fraction, end: Fraction) -> None:
        voice = element.findtext("voice", "1").strip()
        self.voices.setdefault(voice)
        pitch = element.find("pitch")
        if pitch is None or element.find("cue") is not None:
            return
        number = _midi(pitch) + self.transpose
        if 0 <= number < REST:
            self.notes.append(_Note(voice, onset, end, number))


def read_score(path: Path) -> ElementTree.Element:
    """The root of a MusicXML file, plain or compressed (.mxl)."""
    content = path.read_bytes()
    try:
        if path.suffix == ".mxl":
            content = _unzipped(content)
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, zipfile.BadZipFile, zlib.error, KeyError, ValueError) as error:
        raise ValueError(f"{path}: not a MusicXML file ({error})") from None


def melodies_of(score: ElementTree.Element) -> list[tuple[str, NDArray[np.uint8]]]:
    """(name, steps) of each voice of each part; a step is the MIDI pitch 0..127 at a grid point, or 128 for a rest.

    A measure that is empty in one part is as long there as in the part where it is longest.
    """
    if score.tag != "score-partwise":
        raise ValueError(f"root element <{score.tag}>: expected <score-partwise>")
    readers = [_PartReader() for _ in score.findall("part")]
    parts = [
        [reader.measure(measure) for measure in part.findall("measure")]
        for reader, part in zip(readers, score.findall("part"))
    ]
    lengths = [[measure.length for measure in part] for part in parts]
    longest = [max(measure) for measure in zip_longest(*lengths, fillvalue=Fraction(0))]
    names = _part_names(score)
    melodies = []
    for name, reader, part in zip(names, readers, parts):
        starts = list(accumulate((measure.length or most for measure, most in zip(part, longest)), initial=Fraction(0)))
        end = starts[-2] + part[-1].written if part else Fraction(0)
        for voice in reader.voices:
            label = name if len(reader.voices) == 1 else f"{name}, voice {voice}"
            melodies.append((label, _on_grid(_of_voice(part, voice, starts), end)))
    return melodies


def _unzipped(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        for element in container.iter():
            if element.tag.rpartition("}")[2] == "rootfile":
                return archive.read(element.attrib["full-path"])
    raise ValueError("META-INF/container.xml names no score")


def _midi(pitch: ElementTree.Element) -> int:
    step, octave = pitch.findtext("step", "").strip(), int(pitch.findtext("octave", ""))
    return round(12 * (octave + 1) + _SEMITONES[step] + float(pitch.findtext("alter", "0")))


def _part_names(score: ElementTree.Element) -> list[str]:
    names = {part.get("id"): part.findtext("part-name") for part in score.iter("score-part")}
    return [" ".join((names.get(part.get("id")) or part.get("id") or "").split()) for part in score.findall("part")]


def _of_voice(part: list[_Measure], voice: str, starts: list[Fraction]) -> Iterator[tuple[int, Fraction, Fraction]]:
    for start, measure in zip(starts, part):
        for note in measure.notes:
            if note.voice == voice:
                yield note.pitch, start + note.onset, start + note.end


def _on_grid(notes: Iterator[tuple[int, Fraction, Fraction]], end: Fraction) -> NDArray[np.uint8]:
    top = np.full(math.ceil(end * _STEPS_PER_BEAT), -1, dtype=np.int16)
    for pitch, onset, stop in notes:
        sounding = top[math.ceil(onset * _STEPS_PER_BEAT) : math.ceil(stop * _STEPS_PER_BEAT)]
        np.maximum(sounding, pitch, out=sounding)
    return np.where(top < 0, REST, top).astype(np.uint8)
