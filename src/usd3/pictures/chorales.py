"""Chorales as piano rolls: each voice has a colour, and given notes are darker."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import as_count, require
from usd3.pictures.animation import LINE_PX, STRIP_PX, as_frames, basic_palette, cell_width, pages
from usd3.pictures.figures import (
    INK,
    LINE,
    PADDING,
    SOFT_INK,
    STRIP,
    UNKNOWN,
    Bools,
    Ints,
    Pixels,
    as_array,
    as_mask,
    as_titles,
    legend,
    new_figure,
    rgb,
    runs,
    save,
    style,
)
from usd3.pictures.gif import frame_durations, require_gif, save_gif
from usd3.pictures.rolls import REST, label_roll, pitch_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_CHORALES", "VOICE_COLOURS", "animate_chorales", "chorale_rolls"]

MOST_CHORALES = 4  # in one picture
VOICE_COLOURS = {"soprano": "#D55E00", "alto": "#E8A900", "tenor": "#009E73", "bass": "#0072B2"}
_DARKER = 0.55  # of the colour of a given note
_HEIGHT = 1.6  # of a note, in semitones
_VOICES = len(VOICE_COLOURS)
_FIRST = 32  # entries of the palette of an animation, after those that all have: voices, given voices, shades of grey
_UNKNOWN_PX = _FIRST + 2 * _VOICES


def chorale_rolls(
    chorales: Any,
    path: Path | str,
    titles: Sequence[str] | None = None,
    given: Any = None,
    pad: Any = None,
    steps_per_bar: int = 16,
) -> None:
    """Draw chorales as piano rolls, one strip for each, all on the same scale.

    Neighbouring elements of the same pitch in a voice are one note.

    Args:
        chorales: Integers (N, T, 4), N <= 4, soprano to bass: pitches 0..127, and 128 for silence.
        path: The file: .png, .pdf, .svg, ...
        titles: One for each chorale.
        given: Booleans that broadcast to (N, T, 4): given elements, which are darker.
        pad: Booleans that broadcast to (N, T, 4): elements that are not drawn; steps of padding are shaded.
        steps_per_bar: Elements in a bar.
    """
    x = _as_chorales(chorales, "chorales", REST)
    is_given, hidden = as_mask(given, x.shape, "given"), as_mask(pad, x.shape, "pad")
    titles, steps = as_titles(titles, len(x)), as_count(steps_per_bar, "steps_per_bar", 1)
    figure = new_figure(9, 0.6 + len(x) * (2.2 if titles else 2.0))
    strips = figure.subplots(len(x), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for i, axes in enumerate(strips):
        style(axes)
        axes.set_facecolor(STRIP)
        _draw(axes, x[i], is_given[i], hidden[i])
        if titles:
            axes.set_title(titles[i], loc="left", fontsize=9, color=INK, pad=3)
    label_roll(strips[-1], x.shape[1], steps, *pitch_range(x[~hidden], around=2))
    names = VOICE_COLOURS | ({"given: darker": SOFT_INK} if is_given.any() and not is_given.all() else {})
    legend(figure, names | (PADDING if hidden.any() else {}), columns=6)
    save(figure, path)


def animate_chorales(
    frames: Sequence[Any],
    path: Path | str,
    given: Any = None,
    steps_per_bar: int = 16,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the states of a sampler of chorales as an animated GIF: piano rolls, and a progress bar.

    A step is the greyer the more of its voices are not known yet.

    Args:
        frames: Integers (N, T, 4) each, N <= 4, from the noise to the sample: pitches 0..127, 128 for silence; greater
            numbers mean "not known yet".
        path: The file, .gif.
        given: Booleans that broadcast to (N, T, 4): given elements, which are darker.
        steps_per_bar: Elements in a bar.
        frames_per_second: Speed.
        hold: Seconds that the last frame stays.
    """
    require_gif(path)
    durations = frame_durations(len(frames), frames_per_second, hold)
    steps = as_count(steps_per_bar, "steps_per_bar", 1)
    chorales = [_as_chorales(frame, f"frames[{i}]", 2**31) for i, frame in enumerate(frames)]
    flat = as_frames([chorale.reshape(len(chorale), -1) for chorale in chorales], 2**31)
    x = flat.reshape(*flat.shape[:2], -1, _VOICES)
    is_given = as_mask(given, x.shape[1:], "given")
    low, high = pitch_range(x[-1], around=4)
    strips = [[_strip(*one, low, high, steps) for one in zip(frame, is_given)] for frame in x]
    names = {name: _FIRST + voice for voice, name in enumerate(VOICE_COLOURS)}
    names |= {"not known yet": _UNKNOWN_PX + _VOICES - 1} if (x > REST).any() else {}
    save_gif(pages(strips, names), _palette(), durations, path)


def _as_chorales(chorales: Any, name: str, most: int) -> Ints:
    """Chorales (N, T, 4) as an int64 array, checked."""
    x = as_array(chorales)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {x.dtype}: expected integers")
    fits = x.ndim == 3 and x.shape[2] == _VOICES and x.size > 0
    require(fits, f"{name}.shape", x.shape, "(N, T, 4), none of them 0")
    require(len(x) <= MOST_CHORALES, f"len({name})", len(x), f"at most {MOST_CHORALES} chorales")
    wrong = x[(x < 0) | (x > most)]
    require(wrong.size == 0, name, f"... {wrong[:1]} ...", f"categories 0..{most}")
    return np.asarray(x, dtype=np.int64)


def _colour(voice: int, is_given: bool) -> str:
    red, green, blue = rgb(list(VOICE_COLOURS.values())[voice])
    part = _DARKER if is_given else 1.0
    return f"#{round(red * part):02X}{round(green * part):02X}{round(blue * part):02X}"


def _draw(axes: "Axes", chorale: Ints, given: Bools, pad: Bools) -> None:
    """Draw one chorale (T, 4), the bass first, and shade the steps where all voices are padding."""
    is_over = np.logical_and.reduce(pad, axis=1)
    for start, length in runs(is_over[None]):
        if is_over[start]:
            axes.axvspan(start, start + length, color=LINE, linewidth=0)
    for voice in reversed(range(_VOICES)):
        row, is_given, hidden = chorale[:, voice], given[:, voice], pad[:, voice]
        meets = (chorale[:, voice + 1 :] == row[:, None]).any(1)  # a lower voice, which is seen below half a note
        for start, length in runs(np.stack([row, is_given, hidden, meets])):
            if not hidden[start] and row[start] < REST:
                bar, colour = [(start + 0.08, length - 0.16)], _colour(voice, bool(is_given[start]))
                bottom = row[start] - (0 if meets[start] else _HEIGHT / 2)
                height = _HEIGHT / 2 if meets[start] else _HEIGHT
                axes.broken_barh(bar, (bottom, height), color=colour, linewidth=0)


# ---- animation --------------------------------------------------------------------------------------------------


def _palette() -> Pixels:
    """The palette of all animations, with the colours of voices, of given voices, and greys for unknown steps."""
    palette = basic_palette()
    for is_given in (False, True):
        for voice in range(_VOICES):
            palette[_FIRST + voice + _VOICES * is_given] = rgb(_colour(voice, is_given))
    light, grey = (np.array(rgb(colour), dtype=float) for colour in (STRIP, UNKNOWN))
    for count in range(1, _VOICES + 1):
        palette[_UNKNOWN_PX + count - 1] = (light + (grey - light) * count / _VOICES).round().astype(np.uint8)
    return palette


def _strip(chorale: Ints, given: Bools, low: int, high: int, steps: int) -> Pixels:
    """A chorale (T, 4) as pixels: four for each semitone; a note extends by one pixel above and below."""
    width = cell_width(len(chorale))
    pixels: npt.NDArray[np.uint8] = np.full((4 * (high - low + 1), width * len(chorale)), STRIP_PX, dtype=np.uint8)
    unknown = (chorale > REST).sum(1)
    for i, count in enumerate(unknown.tolist()):
        if count:
            pixels[:, width * i : width * (i + 1)] = _UNKNOWN_PX + count - 1
    pixels[:, :: width * steps] = LINE_PX
    for voice in reversed(range(_VOICES)):
        for i, pitch in enumerate(chorale[:, voice].tolist()):
            if pitch < REST and low <= pitch <= high:
                top = 4 * (high - pitch)
                entry = _FIRST + voice + _VOICES * bool(given[i, voice])
                pixels[max(0, top - 1) : top + 5, width * i : width * (i + 1)] = entry
    return pixels
