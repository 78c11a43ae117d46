import os
import subprocess
import sys

import pytest

from usd3._files import remove_unfinished, write_whole, written_whole


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


def test_only_what_dead_processes_left_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".a.{dead.pid}.part.ckpt").touch()
    (tmp_path / f".b.{os.getpid()}.part.ckpt").touch()
    (tmp_path / "c.ckpt").touch()
    remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".b.{os.getpid()}.part.ckpt", "c.ckpt"]
