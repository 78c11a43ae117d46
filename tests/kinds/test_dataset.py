import pytest
import torch

from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.kind import Melody
from usd3.kinds.scramble import scramble


def split(rows=((0, 1, 2), (2, 1, 0)), pad=None):
    return Sequences(torch.tensor(rows), pad)


def test_shape_is_that_of_one_object():
    images = Sequences(torch.zeros(5, 2, 3, dtype=torch.uint8))
    assert Dataset("images", 2, images, images).shape == (2, 3)
    assert len(images) == 5


@pytest.mark.parametrize("name", ["train", "test"])
def test_an_empty_split_is_refused_by_name(name):
    splits = {"train": split(), "test": split()} | {name: Sequences(torch.zeros(0, 3, dtype=torch.long))}
    with pytest.raises(ValueError, match=f"the {name} split is empty"):
        Dataset("d", 3, **splits)


@pytest.mark.parametrize("name", ["train", "test"])
@pytest.mark.parametrize("bad", [-1, 3])
def test_a_token_out_of_range_is_refused_with_split_value_and_range(name, bad):
    splits = {"train": split(), "test": split()} | {name: split([[0, bad, 1]])}
    with pytest.raises(ValueError, match=rf"token of {name} = {bad}: expected categories 0\.\.2"):
        Dataset("d", 3, **splits)


def test_train_and_test_have_objects_of_one_shape():
    with pytest.raises(ValueError, match=r"\(2,\): expected that of train, \(3,\)"):
        Dataset("d", 3, split(), split([[0, 1]]))


@pytest.mark.parametrize("tokens", [torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool), [[0, 1]]])
def test_tokens_that_are_no_integers_are_refused(tokens):
    with pytest.raises(TypeError, match=r"tokens is a .*: expected an integer tensor"):
        Sequences(tokens)


@pytest.mark.parametrize("shape", [(4,), (4, 0)])
def test_objects_without_elements_are_refused(shape):
    with pytest.raises(ValueError, match=r"tokens\.shape"):
        Sequences(torch.zeros(shape, dtype=torch.long))


def test_padding_has_the_shape_of_the_tokens():
    with pytest.raises(ValueError, match=r"pad\.shape = \(2, 2\)"):
        split(pad=torch.zeros(2, 2, dtype=torch.bool))


def test_an_object_that_is_all_padding_is_refused():
    with pytest.raises(ValueError, match="row 1: expected no object that is all padding"):
        split(pad=torch.tensor([[False, True, True], [True, True, True]]))


def test_names_are_one_a_row():
    with pytest.raises(ValueError, match=r"len\(names\) = 1"):
        Sequences(torch.zeros(2, 3, dtype=torch.long), names=("a",))


def test_music_has_129_categories():
    with pytest.raises(ValueError, match="num_classes = 3: expected 129"):
        Dataset("d", 3, split(), split(), kind=Melody(3, (3,)))


def test_decode_maps_tokens_and_encoded_maps_back():
    dataset = Dataset("d", 3, split(), split(), decode=torch.tensor([2, 0, 1]))
    tokens = torch.tensor([[0, 1, 2]], dtype=torch.uint8)
    assert dataset.decoded(tokens).tolist() == [[2, 0, 1]]
    assert dataset.encoded(dataset.decoded(tokens)).tolist() == [[0, 1, 2]]
    assert Dataset("d", 3, split(), split()).decoded(tokens).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("method", ["decoded", "encoded"])
def test_decoding_refuses_what_is_no_category(method):
    with pytest.raises(ValueError, match=r"tokens contains 3: expected categories 0\.\.2"):
        getattr(Dataset("d", 3, split(), split()), method)(torch.tensor([0, 3]))


@pytest.mark.parametrize("decode", [[0, 1, 1], [0, 1, 3], [0, 1]])
def test_decode_must_be_a_permutation(decode):
    with pytest.raises(ValueError, match="decode"):
        Dataset("d", 3, split(), split(), decode=torch.tensor(decode))


def data(k=50):
    generator = torch.Generator().manual_seed(1)
    splits = [Sequences(torch.randint(k, (20, 7), generator=generator)) for _ in range(2)]
    return Dataset("d", k, *splits)


def test_a_scrambled_dataset_decodes_to_the_original_tokens():
    plain = data()
    once = scramble(plain, seed=3)
    twice = scramble(once, seed=4)
    for mixed in (once, twice):
        assert not torch.equal(mixed.train.tokens.long(), plain.train.tokens)
        assert torch.equal(mixed.decoded(mixed.train.tokens), plain.train.tokens)
        assert torch.equal(mixed.decoded(mixed.test.tokens), plain.test.tokens)
        assert torch.equal(mixed.encoded(plain.test.tokens), mixed.test.tokens.long())


def test_scrambling_depends_on_the_seed_alone():
    a, b, c = (scramble(data(), seed).train.tokens for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_scrambling_keeps_padding_and_names():
    pad = torch.tensor([[False, False, True], [False, True, True]])
    train = Sequences(torch.tensor([[0, 1, 2], [2, 1, 0]]), pad, ("a", "b"))
    mixed = scramble(Dataset("d", 3, train, split()), seed=0)
    assert mixed.train.pad is pad
    assert mixed.train.names == ("a", "b")
