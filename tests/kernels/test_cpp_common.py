"""How the library of C++ kernels is built, kept and left out."""

from pathlib import Path

import pytest

from support.problems import NEEDS_CPP
from usd3.kernels import choice, cpp_common


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache folder without a library, and a process that has loaded none."""
    monkeypatch.setenv("USD3_CACHE", str(tmp_path))
    monkeypatch.setattr(cpp_common, "_loaded", [])
    return tmp_path / "kernels"


@pytest.fixture
def built(monkeypatch):
    """The files for which a compiler was started."""
    seen, build = [], cpp_common._built
    monkeypatch.setattr(cpp_common, "_built", lambda path, file: (seen.append(file), build(path, file))[1])
    return seen


def load_again():
    cpp_common._loaded.clear()
    return cpp_common.library()


@NEEDS_CPP
def test_a_library_is_built_once_and_then_loaded(fresh, built):
    assert cpp_common.library() is cpp_common.library() is not None
    assert load_again() is not None
    assert [file.name for file in fresh.iterdir()] == [file.name for file in built]
    assert fresh.stat().st_mode & 0o077 == 0


@NEEDS_CPP
def test_a_damaged_library_is_built_again(fresh, built):
    cpp_common.library()
    (file,) = fresh.iterdir()
    file.write_bytes(b"no library")
    assert load_again() is not None
    assert built == [file, file]


@NEEDS_CPP
def test_a_library_that_others_could_have_written_is_not_loaded(fresh, built):
    cpp_common.library()
    fresh.chmod(0o777)
    assert load_again() is not None
    assert len(built) == 2


@NEEDS_CPP
def test_a_folder_that_cannot_be_written_to_needs_no_cache(fresh, built):
    fresh.write_text("a file in its place")
    assert cpp_common.library() is not None
    assert len(built) == 1


@NEEDS_CPP
def test_another_processor_or_flag_has_a_library_of_its_own(fresh, monkeypatch):
    path = cpp_common.compiler()
    files = {cpp_common._file(path)}
    monkeypatch.setattr(cpp_common, "_processor", lambda: b"another")
    files.add(cpp_common._file(path))
    monkeypatch.setattr(cpp_common, "_FLAGS", ("-O0",))
    files.add(cpp_common._file(path))
    assert len(files) == 3


def test_a_compiler_that_fails_is_named_once_and_leaves_the_kernels_out(fresh, monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    failure = "echo 'cpp_loss.cpp: error: no such thing' >&2; exit 1"
    compiler.write_text(f"#!/bin/sh\n[ $1 = --version ] || {{ {failure}; }}\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(cpp_common, "compiler", lambda: str(compiler))
    with pytest.warns(RuntimeWarning, match=r"could not build the C\+\+ kernels: cpp_loss.cpp: error: no such thing\."):
        assert cpp_common.library() is None
    assert cpp_common.library() is None  # without another warning


@NEEDS_CPP
def test_a_library_runs_where_temporary_files_may_not(fresh, monkeypatch):
    load = cpp_common.ctypes.CDLL

    def only_in_the_cache(path):
        if fresh not in Path(path).parents:
            raise OSError("failed to map segment from shared object")
        return load(path)

    monkeypatch.setattr(cpp_common.ctypes, "CDLL", only_in_the_cache)
    assert cpp_common.library() is not None


@NEEDS_CPP
def test_a_cache_folder_that_cannot_be_read_is_done_without(fresh, monkeypatch):
    """Such as that of root, when a container runs as another user."""
    is_file = Path.is_file

    def refused(path):
        if fresh in path.parents:
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert cpp_common.library() is not None


def test_a_user_without_a_home_has_no_library(monkeypatch):
    def missing():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cpp_common, "_loaded", [])
    monkeypatch.setattr(cpp_common, "compiler", lambda: "/bin/true")
    monkeypatch.setattr(cpp_common, "cache_folder", missing)
    with pytest.warns(RuntimeWarning, match="Could not determine home directory"):
        assert cpp_common.library() is None


@NEEDS_CPP
def test_two_processes_of_one_number_keep_their_libraries_side_by_side(fresh, monkeypatch):
    """As on two computers that share the folder."""
    names, whole = [], cpp_common.written_whole
    monkeypatch.setattr(cpp_common, "written_whole", lambda file: (names.append(file.name), whole(file))[1])
    cpp_common.library()
    (file,) = fresh.iterdir()
    file.unlink()
    load_again()
    assert len(set(names)) == 2
    assert [kept.name for kept in fresh.iterdir()] == [file.name]


def test_a_compiler_that_never_ends_is_left(fresh, monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] || { echo 'a note: no error' >&2; exec sleep 20; }\n")
    compiler.chmod(0o755)
    run = cpp_common._run
    monkeypatch.setattr(cpp_common, "compiler", lambda: str(compiler))
    monkeypatch.setattr(cpp_common, "_run", lambda command, seconds: run(command, min(seconds, 2)))
    with pytest.warns(RuntimeWarning, match="timed out after 2 seconds"):
        assert cpp_common.library() is None


def test_the_switch_and_other_systems_leave_the_kernels_out(monkeypatch):
    monkeypatch.setattr(choice, "_RUNS_ON", {})
    monkeypatch.setenv("USD3_CPP", "0")
    assert cpp_common.compiler() is None
    assert not choice.cpp_runs()
    monkeypatch.delenv("USD3_CPP")
    monkeypatch.setattr(cpp_common.platform, "system", lambda: "Windows")
    assert cpp_common.compiler() is None


def test_the_users_own_compiler_comes_first(monkeypatch):
    monkeypatch.delenv("USD3_CPP", raising=False)
    monkeypatch.setattr(cpp_common.platform, "system", lambda: "Linux")
    monkeypatch.setattr(cpp_common.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("CXX", "mine")
    assert cpp_common.compiler() == "/bin/mine"
    monkeypatch.delenv("CXX")
    assert cpp_common.compiler() == "/bin/c++"
    monkeypatch.setattr(cpp_common.shutil, "which", lambda name: None)
    assert cpp_common.compiler() is None
