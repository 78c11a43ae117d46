"""Tokens in files: made once, whole or not at all, and read without memory."""

import io
import os
import subprocess
import sys
import time

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


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "version", "header", "tokens", "entries"])
def test_a_damaged_file_is_made_again(source, damage):
    make, made = chunks(np.arange(100))
    token_file(source, {}, 100, make, count=100)
    (file,) = (source.parent / "cache" / "tokens").iterdir()
    content = file.read_bytes()
    damaged = {
        "cut": content[:150],
        "empty": b"",
        "other": npy(np.arange(100.0)),
        "version": content[:6] + bytes([9]) + content[7:],
        "header": content.replace(b"}", b"("),
        "tokens": npy(np.arange(1, 101, dtype=np.uint8)),  # 100 is no category
        "entries": npy(np.arange(99, dtype=np.uint8)),
    }
    file.write_bytes(damaged[damage])
    assert token_file(source, {}, 100, make, count=100).tolist() == list(range(100))
    assert len(made) == 2


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_nothing_stays_of_tokens_that_could_not_be_made(source):
    def broken():
        yield np.arange(3)
        raise ValueError("line 7")

    with pytest.raises(ValueError, match="line 7"):
        token_file(source, {}, 5, broken)
    with pytest.raises(ValueError, match=r"token = 5: expected categories 0\.\.4"):
        token_file(source, {}, 5, chunks(np.arange(6))[0])
    with pytest.raises(ValueError, match="entries of the data = 5: expected 7, as found at first"):
        token_file(source, {}, 5, chunks(np.arange(5))[0], count=7)
    assert not list((source.parent / "cache" / "tokens").iterdir())


def test_what_a_killed_process_left_is_removed(source):
    folder = source.parent / "cache" / "tokens"
    folder.mkdir(parents=True)
    for name, age in (("old", 25), ("new", 23)):  # hours; another machine may still write the new one
        (folder / f".{name}.999999999.part.npy").write_bytes(b"half")
        os.utime(folder / f".{name}.999999999.part.npy", (time.time() - age * 3600,) * 2)
    token_file(source, {}, 5, chunks(np.arange(5))[0])
    assert [file.name for file in folder.glob(".*")] == [".new.999999999.part.npy"]


def test_a_link_in_place_of_the_lock_is_not_followed(source):
    token_file(source, {}, 5, chunks(np.arange(5))[0])
    (file,) = (source.parent / "cache" / "tokens").iterdir()
    file.unlink()
    file.with_suffix(".lock").symlink_to(source)
    with pytest.raises(OSError, match="tokens: expected a folder that can be written to"):
        token_file(source, {}, 5, chunks(np.arange(5))[0])
    assert source.read_text() == "abc"


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
