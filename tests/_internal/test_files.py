import os
import subprocess
import sys

import pytest

from usd3._internal.files import is_free, remove_unfinished, write_whole, written_whole


def test_a_file_appears_whole(tmp_path):
    write_whole(tmp_path / "new" / "a.txt", "one")
    write_whole(tmp_path / "new" / "a.txt", b"two")
    assert (tmp_path / "new" / "a.txt").read_text() == "two"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_what_fails_on_the_way_changes_nothing(tmp_path):
    write_whole(tmp_path / "a.npz", "before")

    def fail() -> None:
        with written_whole(tmp_path / "a.npz") as temporary:
            assert temporary.suffix == ".npz"
            temporary.write_text("after")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert (tmp_path / "a.npz").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def dead():
    """A process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


def test_only_what_dead_processes_left_is_removed(tmp_path, dead):
    (tmp_path / f".a.{dead.pid}.part.ckpt").touch()
    (tmp_path / f".b.{os.getpid()}.part.ckpt").touch()
    (tmp_path / "c.ckpt").touch()
    remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".b.{os.getpid()}.part.ckpt", "c.ckpt"]


def test_what_dead_processes_left_half_written_takes_no_folder(tmp_path, dead):
    (tmp_path / f".recipe.{dead.pid}.part.yaml").touch()
    assert is_free(tmp_path)
    (tmp_path / f".recipe.{os.getpid()}.part.yaml").touch()
    assert not is_free(tmp_path)
