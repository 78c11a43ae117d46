from usd3._internal.random import seed_of


def test_seeds_differ_in_every_number():
    made = {seed_of(a, b, c) for a in range(5) for b in range(5) for c in range(5)}
    assert len(made) == 125
    assert all(0 <= seed < 2**63 for seed in made)
