import numpy as np
import pytest

from usd3.kinds.melody.notation import REST
from usd3.kinds.melody.related import Voice
from usd3.kinds.melody.windows import cut, melodies_dataset, worth_keeping

random = np.random.default_rng(3)


def tune(length, low=60):
    return random.integers(low, low + 12, length).astype(np.uint8)


def pieces_of(split):
    return {name.split(" | ")[0] for name in split.names}


def test_windows_do_not_overlap_and_a_short_last_one_needs_a_quarter():
    steps = tune(35)
    found = list(cut(steps, 16))
    assert [start for start, _ in found] == [0, 16]  # 3 steps are left, fewer than 4
    assert np.array_equal(np.concatenate([window for _, window in found]), steps[:32])
    assert [len(window) for _, window in cut(tune(36), 16)] == [16, 16, 4]
    assert list(cut(tune(3), 16)) == []


def test_silent_windows_are_left_out():
    steps = np.concatenate([tune(8), np.full(8, REST, dtype=np.uint8), tune(8)])
    assert [start for start, _ in cut(steps, 8)] == [0, 16]


def test_short_windows_are_padded_with_rest():
    melodies = [Voice("a", "v", tune(20)), Voice("b", "v", tune(20)), Voice("c", "v", tune(20))]
    dataset = melodies_dataset("d", melodies, 16, 0.4, 0)
    for split in (dataset.train, dataset.test):
        short = split.pad.any(1)
        assert not split.pad[short][:, :4].any()
        assert split.pad[short][:, 4:].all()
        assert (split.tokens[split.pad] == REST).all()
        assert (split.tokens[~split.pad] < REST).all()
    rows = {name: row for s in (dataset.train, dataset.test) for name, row in zip(s.names, s.tokens.tolist())}
    assert len(rows) == 6
    assert rows["b | v | 0"] == melodies[1].steps[:16].tolist()
    assert rows["b | v | 16"][:4] == melodies[1].steps[16:].tolist()


def test_voices_of_rest_and_repeated_voices_of_a_piece_are_dropped():
    steps = tune(40)
    nearly_silent = np.full(40, REST, dtype=np.uint8)
    nearly_silent[:3] = 60
    barely_kept = np.full(40, REST, dtype=np.uint8)
    barely_kept[:4] = 60
    melodies = [
        Voice("a", "1", steps),
        Voice("a", "2", steps.copy()),
        Voice("a", "3", nearly_silent),
        Voice("a", "4", barely_kept),
        Voice("a", "5", steps[:0]),
        Voice("b", "1", steps),
    ]
    assert [(m.piece, m.voice) for m in worth_keeping(melodies)] == [("a", "1"), ("a", "4"), ("b", "1")]


@pytest.mark.parametrize("seed", range(8))
def test_pieces_that_share_a_voice_stay_together(seed):
    melodies = [Voice(f"p{i}", "v", tune(100)) for i in range(20)]
    shared = np.concatenate([np.full(7, REST, dtype=np.uint8), melodies[0].steps])  # p0 again, after a rest
    dataset = melodies_dataset("d", [*melodies, Voice("again", "w", shared)], 32, 0.5, seed)
    assert any({"p0", "again"} <= pieces_of(side) for side in (dataset.train, dataset.test))


@pytest.mark.parametrize("seed", range(8))
def test_pieces_that_share_a_stretch_stay_together(seed):
    melodies = [Voice(f"p{i}", "v", tune(100)) for i in range(20)]
    quoting = np.concatenate([tune(31), melodies[1].steps[20:90], tune(11)])
    melodies.append(Voice("quoting", "v", quoting))
    dataset = melodies_dataset("d", melodies, 32, 0.5, seed, stretch=64)
    sides = [pieces_of(dataset.train), pieces_of(dataset.test)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 21
    assert any({"p1", "quoting"} <= side for side in sides)


def transposed(steps, semitones):
    return np.where(steps == REST, REST, steps.astype(int) + semitones).astype(np.uint8)


@pytest.mark.parametrize("seed", range(8))
def test_a_voice_in_another_key_stays_with_its_original(seed):
    melodies = [Voice(f"p{i}", "v", tune(100)) for i in range(20)]
    melodies[0].steps[40:50] = REST
    dataset = melodies_dataset("d", [*melodies, Voice("again", "w", transposed(melodies[0].steps, -3))], 32, 0.5, seed)
    assert any({"p0", "again"} <= pieces_of(side) for side in (dataset.train, dataset.test))


@pytest.mark.parametrize("start", ["at a note", "within a note", "in a rest"])
def test_exactly_a_stretch_in_another_key_binds_pieces(start):
    melodies = [Voice(f"p{i}", "v", tune(200).repeat(2)[:200]) for i in range(20)]
    source = melodies[1].steps
    source[60:62], source[100:106] = REST, REST
    first = {"at a note": 20, "within a note": 21, "in a rest": 60}[start]
    quoting = np.concatenate([tune(31), transposed(source[first : first + 64], 4), tune(11)])
    quoting[30], quoting[31 + 64] = 10, 10  # so that no more than the stretch is shared
    melodies.append(Voice("quoting", "v", quoting))

    def together(stretch, seed):
        dataset = melodies_dataset("d", melodies, 32, 0.5, seed, stretch)
        return any({"p1", "quoting"} <= pieces_of(side) for side in (dataset.train, dataset.test))

    assert all(together(64, seed) for seed in range(8))
    assert not all(together(65, seed) for seed in range(8))


def test_a_shared_held_note_does_not_bind_pieces():
    held = np.full(64, 60, dtype=np.uint8)
    melodies = [Voice(piece, voice, s) for piece in "ab" for voice, s in (("1", held), ("2", tune(64)))]
    dataset = melodies_dataset("d", melodies, 32, 0.5, 0, stretch=32)
    assert len(pieces_of(dataset.test)) == 1


def test_held_out_windows_of_related_pieces_are_a_group():
    shared = tune(40)
    related = [Voice("a", "1", shared), Voice("a", "2", tune(40)), Voice("b", "1", shared)]
    dataset = melodies_dataset("d", [*related, *(Voice(name, "1", tune(40)) for name in "cdef")], 20, 0.9, 0)
    groups = {}
    for name, group in zip(dataset.test.names, dataset.test.groups.tolist()):
        groups.setdefault(name.split(" | ")[0], set()).add(group)
    assert all(len(group) == 1 for group in groups.values())
    assert groups["a"] == groups["b"]
    assert len(set.union(*groups.values())) == len(groups) - 1
    assert dataset.train.groups is None


def test_the_sides_do_not_depend_on_the_length():
    melodies = [Voice(f"p{i}", "v", tune(64 + 5 * i)) for i in range(30)]
    sides = [pieces_of(melodies_dataset("d", melodies, length, 0.3, 5).test) for length in (16, 32, 64)]
    assert sides[0] == sides[1] == sides[2]


def test_melodies_all_too_short_are_refused():
    melodies = [Voice("a", "v", tune(5)), Voice("b", "v", tune(5))]
    with pytest.raises(ValueError, match="windows of train = 0"):
        melodies_dataset("d", melodies, 64, 0.5, 0)
