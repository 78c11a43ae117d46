"""Convert POP909 to one .npz file of melodies for the recipe `pop909` and for `usd3 paper run music`.

    git clone https://github.com/music-x-lab/POP909-Dataset
    python examples/pop909.py POP909-Dataset/POP909 pop909_melody_256.npz

A melody is a window of 256 steps, 16 bars with four steps per beat: 0..127 is a MIDI pitch, 128 a rest. Songs whose
bars do not have four beats are skipped, and so are windows with more rests than notes or fewer than five pitches.

- train: windows of the training songs.
- test: windows of held-out songs, except those that begin with two bars of rests or exactly like a training window.
- parrot: windows of training songs, at most one per song, that begin like one to three training windows and continue
  differently. They are for the train-to-test ratios.
- train_song, test_song, parrot_song: the number of the song of each window.
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
    """The pitches of a song, one per step, and the step of its first bar; None if its bars do not have four beats."""
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
    before, after = np.arange(-64, 0), np.arange(1, 65)  # extend the beats at both ends
    times = np.r_[beats[0] + before * (beats[1] - beats[0]), beats, beats[-1] + after * (beats[-1] - beats[-2])]
    note_steps = [
        np.interp(t, times, 4.0 * np.arange(-64, len(beats) + 64))
        for t in (notes["time"], notes["time"] + notes["duration"])
    ]
    starts, stops = (np.floor(steps + 0.5).astype(int) for steps in note_steps)
    steps = np.full(max(stops.max(), 4 * len(beats)) + 1, REST, np.uint8)
    stops = np.maximum(stops, starts + 1)
    for start, stop, pitch in zip(starts, stops, notes["pitch"]):  # a later note ends an earlier one
        steps[max(start, 0) : max(stop, 0)] = pitch
    return steps, 4 * int(bars[0])


def windows(song: tuple[np.ndarray, int], hop: int) -> Iterator[np.ndarray]:
    """The windows of a song with enough notes, every `hop` steps from the first bar on."""
    steps, first = song
    for start in range(first, len(steps) - LENGTH + 1, hop):
        window = steps[start : start + LENGTH]
        if np.mean(window == REST) <= 0.5 and len(np.unique(window[window != REST])) >= 5:
            yield window


def parrot(song: tuple[np.ndarray, int], heads: Counter[bytes], train: set[bytes]) -> np.ndarray | None:
    """The first window that begins like one to three training windows and is not one of them; None if there is none.

    `heads` counts the beginnings of the training windows, `train` holds the whole windows.
    """
    for window in windows(song, BAR):
        head = window[:HEAD]
        if np.sum(head != REST) >= HEAD // 2 and 1 <= heads[head.tobytes()] <= 3 and window.tobytes() not in train:
            return window
    return None


def convert(folder: Path, held_out: float, most: int, most_parrot: int, seed: int) -> dict[str, Any]:
    """All arrays of the file.

    Args:
        folder: The folder POP909 of the dataset.
        held_out: The share of held-out songs.
        most: The largest number of training windows.
        most_parrot: The largest number of windows in `parrot`.
        seed: Chooses the songs and windows.
    """
    read = {int(path.name): melody(path) for path in sorted(folder.glob("[0-9][0-9][0-9]"))}
    songs = {number: song for number, song in read.items() if song is not None}
    if len(songs) < 2:
        raise ValueError(f"{folder}: expected folders 001, 002, ... of POP909, each with beat_midi.txt and a MIDI file")
    rng = np.random.default_rng(seed)
    order = rng.permutation(list(songs)).tolist()
    count = min(max(1, round(held_out * len(order))), len(order) - 1)
    candidates = {w.tobytes(): (number, w) for number in order[count:] for w in windows(songs[number], 4 * BAR)}
    taken = set(rng.permutation(len(candidates))[:most].tolist())
    train = [candidate for i, candidate in enumerate(candidates.values()) if i in taken]
    heads = Counter(window[:HEAD].tobytes() for _, window in train)
    held_out_windows = ((number, window) for number in order[:count] for window in windows(songs[number], 8 * BAR))
    test = [(n, w) for n, w in held_out_windows if np.any(w[:HEAD] != REST) and not heads[w[:HEAD].tobytes()]]
    whole = {window.tobytes() for _, window in train}
    repeated = ((number, parrot(songs[number], heads, whole)) for number in order[count:])
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
    parser.add_argument("--held_out", type=float, default=0.16, help="the share of held-out songs")
    parser.add_argument("--train", type=int, default=6000, help="the largest number of training windows")
    parser.add_argument("--parrot", type=int, default=124, help="the largest number of windows for the ratios")
    parser.add_argument("--seed", type=int, default=0, help="chooses the songs and windows")
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
