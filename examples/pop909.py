"""Melodies of POP909 as one .npz with train, test and parrot, as the recipe `pop909` and `usd3 paper run music` take.

    git clone https://github.com/music-x-lab/POP909-Dataset
    python examples/pop909.py POP909-Dataset/POP909 pop909_melody_256.npz

Each melody is a window of 256 steps, four to a beat, 16 bars: 0..127 is the MIDI pitch that sounds, 128 a rest. Songs
whose bars have other beats than four are left out, and windows with more rests than notes or fewer than five pitches.
Held-out songs give `test`, without windows that begin with two bars of rests or as a training window does. `parrot` has
windows of training songs, one of a song at most, that begin as up to three training windows do and go on in another
way: for the train-to-test ratios. train_song, test_song and parrot_song say of which song each window is.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import symusic

from usd3._internal.files import written_whole
from usd3.kinds.melody.notation import REST

LENGTH, HEAD, BAR = 256, 32, 16


def melody(folder: Path) -> tuple[np.ndarray, int] | None:
    """A song on the grid of its beats, and where its first bar begins; None where bars have other beats than four."""
    beats, _, first = np.loadtxt(folder / "beat_midi.txt").T
    bars = np.flatnonzero(first)
    if len(bars) < 2 or Counter(np.diff(bars).tolist()).most_common(1)[0][0] != 4:
        return None
    file = folder / f"{folder.name}.mid"
    score: Any = symusic.Score.from_midi(file.read_bytes())
    track = next((track for track in score.to("second").tracks if track.name == "MELODY"), None)
    if track is None or not len(track.notes):
        raise ValueError(f"{file}: expected a track MELODY with notes")
    notes = track.notes.numpy()
    before, after = np.arange(-64, 0), np.arange(1, 65)  # beats go on at both ends
    times = np.r_[beats[0] + before * (beats[1] - beats[0]), beats, beats[-1] + after * (beats[-1] - beats[-2])]
    at = [
        np.interp(t, times, 4.0 * np.arange(-64, len(beats) + 64))
        for t in (notes["time"], notes["time"] + notes["duration"])
    ]
    starts, stops = (np.floor(steps + 0.5).astype(int) for steps in at)
    steps = np.full(max(stops.max(), 4 * len(beats)) + 1, REST, np.uint8)
    stops = np.maximum(stops, starts + 1)
    for start, stop, pitch in zip(starts, stops, notes["pitch"]):  # a later note ends an earlier one
        steps[max(start, 0) : max(stop, 0)] = pitch
    return steps, 4 * int(bars[0])


def windows(song: tuple[np.ndarray, int], hop: int) -> Iterator[np.ndarray]:
    """Those with enough notes, from the first bar on."""
    steps, first = song
    for start in range(first, len(steps) - LENGTH + 1, hop):
        window = steps[start : start + LENGTH]
        if np.mean(window == REST) <= 0.5 and len(np.unique(window[window != REST])) >= 5:
            yield window


def parrot(song: tuple[np.ndarray, int], heads: Counter[bytes], known: set[bytes]) -> np.ndarray | None:
    """The first window that begins as training windows do, and is none of them."""
    for window in windows(song, BAR):
        begin = window[:HEAD]
        if np.sum(begin != REST) >= HEAD // 2 and 1 <= heads[begin.tobytes()] <= 3 and window.tobytes() not in known:
            return window
    return None


def convert(folder: Path, held_out: float, most: int, most_parrot: int, seed: int) -> dict[str, Any]:
    """All arrays; `most` and `most_parrot` windows for training and for the ratios, where there are more."""
    read = {int(path.name): melody(path) for path in sorted(folder.glob("[0-9][0-9][0-9]"))}
    songs = {number: song for number, song in read.items() if song is not None}
    if len(songs) < 2:
        raise ValueError(f"{folder}: expected folders 001, 002, ... of POP909, each with beat_midi.txt and a MIDI file")
    chance = np.random.default_rng(seed)
    order = chance.permutation(list(songs)).tolist()
    count = min(max(1, round(held_out * len(order))), len(order) - 1)
    every = {w.tobytes(): (number, w) for number in order[count:] for w in windows(songs[number], 4 * BAR)}
    taken = set(chance.permutation(len(every))[:most].tolist())
    train = [found for i, found in enumerate(every.values()) if i in taken]
    heads = Counter(window[:HEAD].tobytes() for _, window in train)
    others = ((number, window) for number in order[:count] for window in windows(songs[number], 8 * BAR))
    test = [(n, w) for n, w in others if np.any(w[:HEAD] != REST) and not heads[w[:HEAD].tobytes()]]
    known = {window.tobytes() for _, window in train}
    repeated = ((number, parrot(songs[number], heads, known)) for number in order[count:])
    again = [(number, window) for number, window in repeated if window is not None][:most_parrot]
    arrays: dict[str, Any] = {}
    for name, part in (("train", train), ("test", test), ("parrot", again)):
        arrays[name] = np.array([window for _, window in part], np.uint8).reshape(-1, LENGTH)
        arrays[f"{name}_song"] = np.array([number for number, _ in part], np.int16)
    return arrays


def main() -> None:
    """Read the options and convert."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder POP909 of the dataset")
    parser.add_argument("out", type=Path, help="the .npz file")
    parser.add_argument("--held_out", type=float, default=0.16, help="the share of songs that are held out")
    parser.add_argument("--train", type=int, default=6000, help="at most so many windows for training")
    parser.add_argument("--parrot", type=int, default=124, help="at most so many for the ratios")
    parser.add_argument("--seed", type=int, default=0, help="which songs and windows these are")
    options = parser.parse_args()
    if options.out.suffix != ".npz" or options.out.exists():
        parser.error(f"{options.out}: expected an .npz file that does not exist")
    try:
        arrays = convert(options.folder, options.held_out, options.train, options.parrot, options.seed)
    except (ValueError, OSError) as error:
        parser.error(" ".join(str(error).split()))
    with written_whole(options.out) as file:
        np.savez_compressed(file, **arrays)
    print(f"{', '.join(f'{len(arrays[name])} {name}' for name in ('train', 'test', 'parrot'))} in {options.out}")


if __name__ == "__main__":
    main()
