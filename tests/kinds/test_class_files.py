"""Data in several files, one for each class."""

import numpy as np
import pytest
import torch

from usd3.kinds.class_files import absolute_places, class_files, data_name, places_of, shared_places
from usd3.kinds.options import DataConfig


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_list_names_the_file_of_each_class(here):
    path = "promoter = a.fa,none=b/c.fa"
    assert {name: str(file) for name, file in class_files(path, (".fa",)).items()} == {
        "promoter": "a.fa",
        "none": "b/c.fa",
    }
    assert list(map(str, places_of(path))) == ["a.fa", "b/c.fa"]
    assert absolute_places(path) == f"promoter={here}/a.fa,none={here}/b/c.fa"
    assert shared_places(absolute_places(path)) == "promoter=a.fa,none=c.fa"
    assert data_name(path) == "promoter-none"


def test_a_single_path_is_itself_even_with_an_equals_sign(here):
    (here / "x=1.fa").write_text("")
    for path in ("x=1.fa", "a/b.fa"):
        assert class_files(path, (".fa",)) is None
        assert list(map(str, places_of(path))) == [path]
        assert absolute_places(path) == str(here / path)
    assert shared_places("a/b.fa") == "b.fa"
    assert data_name("a/b.fa") == "b"


def test_a_folder_has_a_file_for_each_class(here):
    for name in ("one.fa", "two.fasta", ".hidden.fa", "notes.md"):
        (here / name).write_text("")
    assert list(class_files(".", (".fa", ".fasta"))) == ["one", "two"]
    assert class_files(".", ()) is None
    (here / "one.fasta").write_text("")
    with pytest.raises(ValueError, match="expected one file for each class"):
        class_files(".", (".fa", ".fasta"))


@pytest.mark.parametrize("path", ["a=x.fa,a=y.fa", "a=x.fa"])
def test_classes_are_different_and_at_least_two(path):
    with pytest.raises(ValueError, match="CLASS=FILE,CLASS=FILE, at least two classes"):
        class_files(path, (".fa",))


def arrays(name, rows, first, **more):
    np.savez(name, train=np.full((rows, 3), first), test=np.full((2, 3), first), **more)


def test_groups_of_two_files_are_different_groups(here):
    arrays("a.npz", 4, 1, test_song=[5, 5])
    arrays("b.npz", 4, 1, test_song=[5, 6])
    assert DataConfig("array", "a=a.npz,b=b.npz").load().test.groups.tolist() == [0, 0, 1, 2]
    arrays("c.npz", 4, 1)
    assert DataConfig("array", "a=a.npz,c=c.npz").load().test.groups is None


def test_arrays_of_several_files_are_joined_with_their_classes(here):
    arrays("a.npz", 4, 1)
    arrays("b.npz", 5, 2)
    data = DataConfig("array", "low=a.npz,high=b.npz", num_classes=4).load()
    assert data.labels == {"label": ("low", "high")}
    assert data.name == "low-high"
    assert data.train.labels.flatten().tolist() == [0] * 4 + [1] * 5
    assert torch.equal(data.train.tokens[:, 0].long(), data.train.labels[:, 0] + 1)
    assert data.test.labels.flatten().tolist() == [0, 0, 1, 1]


def test_the_padding_of_one_file_is_kept(here):
    np.savez("a.npz", train=np.array([[1, 1, 9]] * 3), test=np.array([[1, 1, 1]] * 2))
    np.savez("b.npz", train=np.array([[2, 2, 2]] * 2), test=np.array([[2, 2, 2]] * 2))
    data = DataConfig("array", "a=a.npz,b=b.npz", num_classes=4, pad_value=9).load()
    assert data.train.pad.any(1).tolist() == [True] * 3 + [False] * 2
    assert data.test.pad is None


def test_files_whose_objects_differ_are_refused(here):
    arrays("a.npz", 4, 1)
    arrays("b.npz", 4, 3)
    with pytest.raises(ValueError, match=r"data\.path = .*: expected files whose objects are alike, but b has"):
        DataConfig("array", "a=a.npz,b=b.npz").load()


def test_boards_melodies_and_sequences_have_classes_too(here):
    (here / "a.txt").write_text("1234341221434321\n" * 3 + "1243341221344321\n")
    (here / "b.txt").write_text("1234432121433412\n" * 2 + "1234341223414123\n")
    boards = DataConfig("board", "easy=a.txt,hard=b.txt").load()
    assert boards.labels == {"label": ("easy", "hard")}
    assert len(boards.train) + len(boards.test) == 7
    arrays("a.npz", 4, 60)
    arrays("b.npz", 4, 64)
    assert DataConfig("array", "c=a.npz,e=b.npz", music=True).load().labels == {"label": ("c", "e")}
    for name, letters in (("x", "ACGT"), ("y", "AAAA")):
        (here / f"{name}.fa").write_text("".join(f">{i}\n{letters[i % 4 :]}{letters[: i % 4]}\n" for i in range(8)))
    data = DataConfig("sequence", "x=x.fa,y=y.fa").load()
    assert data.labels == {"label": ("x", "y")}
    for split in (data.train, data.test):
        only_a = (
            (split.tokens == split.tokens[split.labels[:, 0] == 1][:1]).all(1) if (split.labels == 1).any() else None
        )
        if only_a is not None:
            assert torch.equal(only_a, split.labels[:, 0] == 1)


def test_labels_that_are_asked_for_and_not_there(here):
    arrays("a.npz", 4, 1)
    with pytest.raises(ValueError, match=r"data\.labels = True: expected data with labels: CLASS=FILE"):
        DataConfig("array", "a.npz", labels=True).load()
    arrays("b.npz", 4, 1, train_label=np.array([0, 1, 0, 1]), test_label=np.array([0, 1]))
    assert DataConfig("array", "b.npz").load().labels == {"label": ("0", "1")}
    assert DataConfig("array", "b.npz", labels=False).load().labels == {}
