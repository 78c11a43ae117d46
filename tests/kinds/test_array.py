import io
import zipfile

import numpy as np
import pytest
import torch

from support.runs import memory_below
from usd3.kinds import numpy_files
from usd3.kinds.array import load_arrays
from usd3.kinds.melody.kind import Melody
from usd3.kinds.options import DataConfig

ROWS = np.arange(60).reshape(20, 3) % 7


@pytest.fixture
def save(tmp_path):
    def write(name="data.npz", array=None, **arrays):
        path = tmp_path / name
        if array is None:
            np.savez(path, **arrays)
        else:
            np.save(path, array)
        return path

    return write


def rows(*splits):
    return sorted(tuple(row) for split in splits for row in split.tokens.tolist())


def test_named_arrays_are_the_splits(save):
    dataset = load_arrays(save(train=ROWS[:15], test=ROWS[15:]))
    assert dataset.train.tokens.tolist() == ROWS[:15].tolist()
    assert dataset.test.tokens.tolist() == ROWS[15:].tolist()
    assert (dataset.num_classes, dataset.shape, dataset.name) == (7, (3,), "data")
    assert dataset.train.tokens.dtype == torch.uint8


@pytest.mark.parametrize("songs", [[4, 4, 1, 4, 1], ["b", "b", "a", "b", "a"]])
@pytest.mark.parametrize("ending", ["song", "group"])
def test_objects_of_a_song_are_a_group(save, songs, ending):
    path = save(train=ROWS[:15], test=ROWS[15:], **{f"test_{ending}": songs, "train_song": range(15)})
    assert load_arrays(path).test.groups.tolist() == [1, 1, 0, 1, 0]
    scrambled = DataConfig("array", str(path), scramble=0).load()
    assert scrambled.test.groups.tolist() == [1, 1, 0, 1, 0]
    assert load_arrays(save("others.npz", train=ROWS[:15], test=ROWS[15:])).test.groups is None
    with pytest.raises(ValueError, match=r"_song\].shape = \(4,\): expected \(5,\), the group of each object"):
        load_arrays(save("wrong.npz", train=ROWS[:15], test=ROWS[15:], test_song=[1, 2, 3, 4]))


def test_rows_that_are_held_out_at_random_keep_their_groups(save):
    dataset = load_arrays(save(train=np.arange(40).reshape(20, 2), train_group=np.arange(20) // 2), test_fraction=0.4)
    assert dataset.test.groups.tolist() == [first // 4 for first, _ in dataset.test.tokens.tolist()]


def test_other_names_can_be_given(save):
    dataset = load_arrays(save(a=ROWS[:4], b=ROWS[4:], c=ROWS), train="b", test="a")
    assert (len(dataset.train), len(dataset.test)) == (16, 4)


@pytest.mark.parametrize("kind", ["npy", "npz with a train array", "npz with one array"])
def test_without_a_test_array_the_rows_are_split_at_random(save, kind):
    numbered = np.arange(100)[:, None] + np.zeros((1, 2), dtype=int)
    name = "train" if "train" in kind else "x"
    path = save("data.npy", numbered) if kind == "npy" else save(**{name: numbered})
    splits = [load_arrays(path, test_fraction=0.2, seed=seed) for seed in (0, 0, 1)]
    assert len(splits[0].test) == 20
    assert rows(splits[0].train, splits[0].test) == sorted(map(tuple, numbered.tolist()))
    assert rows(splits[0].test) == rows(splits[1].test) != rows(splits[2].test)


def test_objects_may_have_any_shape_and_many_categories(save):
    dataset = load_arrays(save("images.npy", np.arange(3 * 4 * 5 * 6).reshape(3, 4, 5, 6)))
    assert (dataset.shape, dataset.num_classes) == ((4, 5, 6), 360)
    assert dataset.train.tokens.dtype == torch.int32


def test_the_pad_value_becomes_padding_and_token_0(save):
    train = np.array([[1, 2, -1], [2, -1, -1]])
    dataset = load_arrays(save(train=train, test=np.array([[1, 1, 1]])), pad_value=-1)
    assert dataset.train.tokens.tolist() == [[1, 2, 0], [2, 0, 0]]
    assert dataset.train.pad.tolist() == [[False, False, True], [False, True, True]]
    assert dataset.test.pad is None
    assert dataset.num_classes == 3


def test_a_large_pad_value_does_not_count_as_a_category(save):
    assert load_arrays(save(train=np.array([[0, 1, 99]]), test=np.array([[1, 0, 1]])), pad_value=99).num_classes == 2


def test_music_has_129_categories(save):
    path = str(save(train=ROWS, test=ROWS))
    dataset = DataConfig("array", path, music=True).load()
    assert dataset.kind == DataConfig("array", path, kind="melody").load().kind == Melody(129, dataset.shape)
    assert dataset.num_classes == 129


def test_several_arrays_without_the_named_one_are_listed(save):
    with pytest.raises(ValueError, match="= a, b: expected one named 'train'"):
        load_arrays(save(a=ROWS, b=ROWS))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (ROWS.astype(float), "dtype = float64: expected integers"),
        (ROWS > 1, "dtype = bool: expected integers"),
        (np.array(["a", "b"]), "dtype = <U1: expected integers"),
        (ROWS - 1, r"= -1: expected categories, .* \(where it is padding: --data.pad_value -1\)$"),
        (ROWS.astype(np.uint64) + np.uint64(2**63), "expected categories"),
        (ROWS[:0], r"shape = \(0, 3\)"),
        (ROWS[:, 0], r"shape = \(20,\)"),
        (
            ROWS[:1],
            r"^objects of .*data.npy = 1: expected at least 2, one to train on and one held out, or an .npz with",
        ),
    ],
)
def test_unfit_arrays_are_refused(save, array, message):
    with pytest.raises(ValueError, match=message):
        load_arrays(save("data.npy", array))


def test_tokens_above_num_classes_are_refused(save):
    with pytest.raises(ValueError, match=r"token of test = 6: expected categories 0\.\.4"):
        load_arrays(save(train=ROWS % 5, test=ROWS), num_classes=5)


def test_one_token_does_not_ask_for_billions_of_categories(save):
    with pytest.raises(ValueError, match=r"token of .* = 1000000000: expected categories, integers 0\.\.16777215"):
        load_arrays(save(train=np.full((3, 2), 10**9)))
    with pytest.raises(ValueError, match=r"num_classes = 1000000000: expected an integer 2\.\.16777216"):
        load_arrays(save(train=ROWS, test=ROWS), num_classes=10**9)


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "data.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"data\.npy: expected a \.npy or \.npz file of plain numbers"):
        load_arrays(tmp_path / "data.npy")


@pytest.mark.parametrize("content", [b"", b"not an array", b"PK\x03\x04 half a zip"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"data\.npz: expected a \.npy or \.npz file"):
        load_arrays(tmp_path / "data.npz")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.npy: no such file"):
        load_arrays(tmp_path / "none.npy")
    with pytest.raises(FileNotFoundError, match=r"a folder; expected a \.npy or \.npz file"):
        load_arrays(tmp_path)


@pytest.mark.parametrize("fraction", [0, 1, -0.5])
def test_the_test_fraction_lies_between_0_and_1(save, fraction):
    with pytest.raises(ValueError, match="test_fraction"):
        load_arrays(save("data.npy", ROWS), test_fraction=fraction)


def test_held_out_tokens_beyond_those_of_training_are_told_unless_the_number_is_given(save):
    path = save(train=ROWS % 5, test=ROWS)
    with pytest.warns(UserWarning, match=r"the largest held-out token is 6, that of training 4; there are 7"):
        assert load_arrays(path).num_classes == 7
    assert load_arrays(path, num_classes=7).num_classes == 7
    assert load_arrays(save(train=ROWS, test=ROWS % 5)).num_classes == 7
    padded = save(train=ROWS % 5, test=np.where(ROWS > 4, 99, ROWS))
    assert load_arrays(padded, pad_value=99).num_classes == 5


def test_a_random_split_is_never_told_of(save):
    rows = np.zeros((20, 3), dtype=int)
    for largest in range(20):  # whichever rows are held out
        numbered = rows.copy()
        numbered[largest] = 5
        assert load_arrays(save("data.npy", numbered)).num_classes == 6


@pytest.mark.parametrize("kind", ["few elements", "many elements"])
def test_far_more_categories_than_tokens_that_occur_are_asked_about(save, kind):
    rows = np.arange(400).reshape(100, 4) if kind == "few elements" else np.arange(80_000).reshape(20_000, 4) % 400
    rows[0, 0] = 1_999_999 if kind == "few elements" else 70_000
    path, count = save("data.npy", rows), rows[0, 0] + 1
    with pytest.raises(ValueError, match=f"num_classes = None: expected how many .* --data.num_classes {count}"):
        load_arrays(path)
    assert load_arrays(path, num_classes=int(count)).num_classes == count


def test_small_numbers_of_categories_and_well_used_ones_are_never_asked_about(save):
    sparse = np.zeros((20, 3), dtype=int)
    sparse[:, 0] = 65_535
    assert load_arrays(save("data.npy", sparse)).num_classes == 65_536
    used = 7 * np.arange(30_000).reshape(10_000, 3)
    assert load_arrays(save("data.npy", used)).num_classes == 7 * 29_999 + 1


def header(shape, dtype="|u1"):
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, {"shape": shape, "fortran_order": False, "descr": dtype})
    return written.getvalue()


def zipped(path, *parts):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        for part in parts:
            file.write(part)
    return path


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((10**12, 4), "|u1"), ((2, 4), "<U1000000000"), ((10**12, 4), "<U0"), ((-1, 4), "|u1"), ((2**40, 2**40), "<i8")],
)
@pytest.mark.parametrize("kind", ["npy", "npz", "npy that ends as a zip"])
def test_an_array_that_says_to_be_larger_than_its_file_is_refused(tmp_path, shape, dtype, kind):
    content = header(shape, dtype) + bytes(8)
    if kind == "npz":
        path = zipped(tmp_path / "x.npz", content)
    else:
        path = tmp_path / "x.npy"
        ending = b"" if kind == "npy" else zipped(tmp_path / "y.npz", header((2, 4)), bytes(8)).read_bytes()
        path.write_bytes(content + ending)
    message = "expected a .npy or .npz file of plain numbers"
    with memory_below(2**20), pytest.raises(ValueError, match=message):
        load_arrays(path)


def test_a_header_that_breaks_off_is_refused(save):
    """NumPy reads it as Python, in which a bracket that is not closed is an error of its own."""
    path = save("data.npy", np.ones((50, 8), dtype=int))
    path.write_bytes(path.read_bytes().replace(b"(50, 8)", b"(50, 8 "))
    with pytest.raises(ValueError, match=r"expected a .npy or .npz file of plain numbers"):
        load_arrays(path)


def test_a_small_file_does_not_become_a_large_one(tmp_path):
    """Zeros, 300 MB in a file of a thousandth of that."""
    path = zipped(tmp_path / "x.npz", header((300, 2**20)), *[bytes(2**20)] * 300)
    message = r"314,572,928 bytes when unpacked: expected at most 268,435,456, or numpy.savez"
    with memory_below(2**20), pytest.raises(ValueError, match=message):
        load_arrays(path)


def test_large_files_are_read_if_they_are_large(tmp_path, monkeypatch):
    """Beyond a size that any file may have, it is what the file has that counts."""
    monkeypatch.setattr(numpy_files, "_ALWAYS_ALLOWED", 2**10)
    zeros = np.zeros((100, 1000), dtype=np.uint8)
    np.savez(tmp_path / "plain.npz", train=zeros)
    np.savez_compressed(tmp_path / "packed.npz", train=zeros)
    np.savez_compressed(tmp_path / "random.npz", train=np.random.default_rng(0).integers(0, 5, (100, 1000)))
    for name in ("plain", "random"):
        assert load_arrays(tmp_path / f"{name}.npz", 5).shape == (1000,)
    with pytest.raises(ValueError, match="bytes when unpacked"):
        load_arrays(tmp_path / "packed.npz", 5)


def test_tokens_take_no_more_memory_than_they_need(save):
    path = save("data.npy", np.ones((1000, 1000), dtype=np.uint8))
    with memory_below(5e6):
        load_arrays(path, 5)
