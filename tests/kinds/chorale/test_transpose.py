import torch

from usd3.kinds.chorale.notation import RANGES
from usd3.kinds.chorale.transpose import transposer

REST = 128
C = torch.tensor([72, 64, 55, 48])


def moved(tokens, most, pad=None, seed=0, **options):
    return transposer(most, **options)(tokens, pad, torch.Generator().manual_seed(seed))


def shifts(tokens, most):
    """By how much 2,000 copies of a chorale (T, 4) are moved."""
    copies = tokens.expand(2000, -1, -1)
    return (moved(copies, most) - copies)[:, 0, 0]


def test_all_voices_move_by_one_number_of_semitones():
    x = C + torch.randint(-2, 3, (50, 16, 4), generator=torch.Generator().manual_seed(3))
    shift = moved(x, 3) - x
    assert (shift == shift[:, :1, :1]).all()
    assert set(shift[:, 0, 0].tolist()) == {-3, -2, -1, 0, 1, 2, 3}


def test_all_moves_within_the_ranges_are_equally_likely():
    found = shifts(C.expand(4, 4), 12)  # the alto can go 10 up, the soprano 9; the tenor 7 down
    counts = torch.bincount(found + 12)
    possible = counts.nonzero().flatten() - 12
    assert possible.tolist() == list(range(-7, 10))
    expected = 2000 / 17
    assert (counts[possible + 12] - expected).abs().max() < 5 * expected**0.5  # five standard deviations


def test_a_chorale_outside_the_ranges_does_not_go_further_outside():
    low = torch.tensor([[50, 64, 55, 48]])
    assert set(shifts(low, 3).tolist()) == {0, 1, 2, 3}


def test_silence_and_padding_stay():
    x = C.expand(40, 8, 4).clone()
    x[:, :4, 0] = REST
    pad = torch.zeros(x.shape, dtype=torch.bool)
    pad[:, 6:], x[:, 6:] = True, 0
    out = moved(x, 6, pad)
    assert (out[:, :4, 0] == REST).all()
    assert (out[:, 6:] == 0).all()
    assert (out[:, :6, 1] != 64).any()


def test_an_object_without_a_note_stays():
    x = torch.full((5, 8, 4), REST)
    assert torch.equal(moved(x, 6), x)


def test_renamed_categories_move_as_their_pitches():
    decode = torch.randperm(129, generator=torch.Generator().manual_seed(0))
    encode = decode.argsort()
    x = C.expand(30, 8, 4)
    assert torch.equal(decode[moved(encode[x], 6, decode=decode)], moved(x, 6))


def test_voices_stay_in_their_ranges():
    lowest, highest = torch.tensor(RANGES).T
    x = (lowest + (highest - lowest) // 2 + torch.randint(-3, 4, (200, 8, 4))).long()
    out = moved(x, 24)
    assert (out >= lowest).all()
    assert (out <= highest).all()
