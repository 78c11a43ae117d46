"""Tokens in files: made once, whole or not at all, and read without memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from support.runs import memory_below
from usd3.kinds.rows import Windows
from usd3.kinds.token_files import as_tensor, map_bytes, token_dtype, token_file


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file of the user, and a cache of its own."""
    monkeypatch.setenv("USD3_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text("abc")
    return tmp_path / "book.txt"


def chunks(*arrays):
    made = []

    def make():
        made.append(1)
        return iter(arrays)

    return make, made


def test_chunks_of_any_length_become_one_array(source, capsys):
    make, made = chunks(np.arange(5), np.arange(0), np.arange(7))
    for _ in range(2):
        tokens = token_file(source, {"a": 1}, 7, make)
        assert tokens.tolist() == [*range(5), *range(7)]
        assert tokens.dtype == np.uint8
        assert not tokens.flags.writeable
    assert made == [1]  # the second time they are found
    (file,) = (source.parent / "cache" / "tokens").iterdir()
    assert np.load(file).tolist() == tokens.tolist()
    printed = capsys.readouterr().err.splitlines()
    assert printed == [
        f"writing the tokens of {source} to a file, once",
        *[f"the tokens of {source} are in {file} (1.2e-08 GB); it can be removed at any time"] * 2,
    ]


def test_entries_may_have_a_shape(source):
    rows = np.arange(24).reshape(4, 2, 3)
    tokens = token_file(source, {}, 1000, chunks(rows[:1], rows[1:])[0], (2, 3))
    assert np.array_equal(tokens, rows)
    assert tokens.dtype == np.int16


def test_other_options_or_another_file_mean_other_tokens(source):
    make, made = chunks(np.arange(3))
    token_file(source, {}, 9, make)
    token_file(source, {"tokenizer": "bytes"}, 9, make)
    token_file(source, {}, 10, make)
    os.utime(source, ns=(0, 12345))
    token_file(source, {}, 9, make)
    source.write_text("abcd")
    os.utime(source, ns=(0, 12345))
    token_file(source, {}, 9, make)
    token_file(source, {}, 9, make)
    assert len(made) == 5


@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_a_damaged_file_is_made_again(source, damage):
    make, made = chunks(np.arange(100))
    token_file(source, {}, 100, make)
    (file,) = (source.parent / "cache" / "tokens").iterdir()
    if damage == "other":
        np.save(file, np.arange(100.0))
    else:
        file.write_bytes(file.read_bytes()[: 150 if damage == "cut" else 0])
    assert token_file(source, {}, 100, make).tolist() == list(range(100))
    assert len(made) == 2


def test_nothing_stays_of_tokens_that_could_not_be_made(source):
    def broken():
        yield np.arange(3)
        raise ValueError("line 7")

    with pytest.raises(ValueError, match="line 7"):
        token_file(source, {}, 5, broken)
    with pytest.raises(ValueError, match=r"token = 5: expected categories 0\.\.4"):
        token_file(source, {}, 5, chunks(np.arange(6))[0])
    assert not list((source.parent / "cache" / "tokens").iterdir())


def test_what_a_killed_process_left_is_removed(source):
    folder = source.parent / "cache" / "tokens"
    folder.mkdir(parents=True)
    (folder / ".old.999999999.part.npy").write_bytes(b"half")
    token_file(source, {}, 5, chunks(np.arange(5))[0])
    assert not list(folder.glob(".old*"))


def test_two_processes_make_the_tokens_once(source):
    """Both begin at the same time; each writes its number to a file when it has to make the tokens."""
    code = f"""
import os, time, numpy as np
from pathlib import Path
from usd3.kinds.token_files import token_file
def make():
    with open({str(source.parent / "made")!r}, "a") as file: file.write(".")
    time.sleep(1.0)
    yield np.arange(5)
assert token_file(Path({str(source)!r}), {{}}, 5, make).tolist() == [0, 1, 2, 3, 4]
"""
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (source.parent / "made").read_text() == "."


def test_a_cache_that_cannot_be_written_is_named(source, monkeypatch):
    monkeypatch.setenv("USD3_CACHE", str(source))  # a file, no folder
    with pytest.raises(OSError, match=r"book\.txt.tokens: expected a folder that can be written to .*USD3_CACHE names"):
        token_file(source, {}, 5, chunks(np.arange(5))[0])


def test_a_full_disk_names_the_folder_of_the_tokens(source):
    def full():
        yield np.arange(5)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"tokens: expected room for tokens \(No space left on device\)") as raised:
        token_file(source, {}, 5, full)
    assert raised.value.__context__ is None  # a run would take it for its own folder


@pytest.mark.parametrize(("num_classes", "dtype"), [(256, "u1"), (257, "i2"), (2**15, "i2"), (2**15 + 1, "i4")])
def test_tokens_take_as_little_room_as_torch_allows(num_classes, dtype):
    assert token_dtype(num_classes) == dtype
    largest = np.array([num_classes - 1]).astype(dtype)
    assert torch.from_numpy(largest).long().item() == num_classes - 1


def test_a_mapped_file_is_read_only_where_it_is_used(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**31)
        file.seek(2**30)
        file.write(b"here")
    with memory_below(2**20):
        windows = Windows(map_bytes(path), 4)
        assert bytes(windows.take(torch.tensor([2**30]))[0][0].tolist()) == b"here"
    assert len(windows) == 2**31 - 3


def test_a_tensor_shares_the_memory_of_its_array():
    array = np.arange(5)
    array.flags.writeable = False
    assert as_tensor(array).data_ptr() == array.ctypes.data
