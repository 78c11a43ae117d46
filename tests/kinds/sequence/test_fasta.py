"""FASTA files as people have them: many lines, line ends of all systems, comments, gzip; and what is refused."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from usd3.kinds.sequence import fasta
from usd3.kinds.sequence.fasta import read_fasta, write_fasta


def written(folder: Path, content: bytes, name: str = "a.fa") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def content(path: Path) -> dict[str, str]:
    records = read_fasta(path)
    letters = bytes(records.codes).decode()
    ends = records.starts.tolist()
    return {name: letters[a:b] for name, a, b in zip(records.names, ends, ends[1:])}


def test_names_are_whole_lines_and_sequences_have_many(tmp_path):
    path = written(tmp_path, b">one  of two\nACG\nTT\n\n>two\nGG\n")
    assert content(path) == {"one  of two": "ACGTT", "two": "GG"}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_of_every_system_and_a_byte_order_mark(tmp_path, end, mark):
    path = written(tmp_path, mark + end.join([b">a", b"AC GT", b"\tA", b">b", b"CC"]))
    assert content(path) == {"a": "ACGTA", "b": "CC"}


def test_comments_are_skipped(tmp_path):
    path = written(tmp_path, b"; made by hand\n;\n>a\nAC\n; a gene\nGT\n>b\nC\n")
    assert content(path) == {"a": "ACGT", "b": "C"}


def test_long_lines_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(fasta, "_PART", 4)
    name, letters = "a name > of many; parts", "ACGT" * 50 + ";>A"
    path = written(tmp_path, f"; a comment > of parts\n>{name}\n{letters}\n>b\nC".encode())
    assert content(path) == {name: letters, "b": "C"}


def test_names_may_have_any_letters(tmp_path):
    path = written(tmp_path, ">gène\nAC\n>b\xff\nC\n".encode() + b">\xff\nA\n")
    assert list(content(path)) == ["gène", "bÿ", "�"]


def test_a_record_without_letters_is_left_out(tmp_path):
    path = written(tmp_path, b">a\nAC\n>none\n>also\n\n;\n>b\nC\n>last")
    with pytest.warns(UserWarning, match="3 records without letters are left out"):
        assert content(path) == {"a": "AC", "b": "C"}
    with pytest.warns(UserWarning, match="1 record without letters is left out"):
        assert content(written(tmp_path, b">a\nAC\n>none\n")) == {"a": "AC"}


def test_equal_names_are_kept_and_told(tmp_path):
    path = written(tmp_path, b">a\nAC\n>b\nG\n>a\nCC\n>a\nT\n")
    with pytest.warns(UserWarning, match="2 sequences have the name of another one; 'a' occurs 3 times"):
        records = read_fasta(path)
    assert records.names == ("a", "b", "a", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"ACGT\n>a\nAC\n", "line 1: expected `>` and a name before the first letters, not 'ACGT'"),
        (b";x\n\n  \nname, sequence, of, a table\n", "line 4: expected `>` .*, not 'name,sequence,of.*"),
        (b">a\nAC\x00GT\n", "letters of .*a.fa = the byte 0 in a: expected printable characters"),
        (">a\nACé\n".encode(), "letters of .* = the byte 195 in a"),
    ],
)
def test_what_is_no_fasta_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_fasta(written(tmp_path, text))


def test_a_path_without_a_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file; expected a FASTA file"):
        read_fasta(tmp_path / "a.fa")
    with pytest.raises(FileNotFoundError, match="a folder; expected a FASTA file"):
        read_fasta(tmp_path)


def test_an_empty_file_has_no_sequences(tmp_path):
    assert len(read_fasta(written(tmp_path, b""))) == 0


def test_packed_files_are_read_whatever_their_name(tmp_path):
    packed = gzip.compress(b">a\nACGT\n>b\r\nC\r\n")
    for name in ("a.fa.gz", "b.fa"):
        assert content(written(tmp_path, packed, name)) == {"a": "ACGT", "b": "C"}


@pytest.mark.parametrize("damage", [slice(0, 20), slice(0, -3)])
def test_a_damaged_packed_file_is_told(tmp_path, damage):
    packed = gzip.compress(b">a\n" + bytes(range(65, 91)) * 3 + b"\n")
    with pytest.raises(ValueError, match=r"a.fa.gz: expected a FASTA file, or one packed by gzip \("):
        read_fasta(written(tmp_path, packed[damage], "a.fa.gz"))


def test_a_packed_file_that_is_far_larger_unpacked_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fasta, "_ALWAYS_ALLOWED", 2**16)
    path = written(tmp_path, gzip.compress(b">a\n" + b"A" * 10**7), "a.fa.gz")
    most = 100 * path.stat().st_size
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"more than {most:,}: expected at most {most:,} characters unpacked"):
        read_fasta(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 10**6  # a part of it


@pytest.mark.parametrize("line", [60, 10**6])
def test_memory_and_time_are_linear(tmp_path, line):
    """Two million letters take a few bytes each; a quadratic reader would not end."""
    letters = 2 * 10**6
    lines = (b"ACGT" * (line // 4) + b"\n") * (letters // line)
    path = written(tmp_path, b">a\n" + lines)
    tracemalloc.start()
    records = read_fasta(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert records.lengths.tolist() == [letters // line * line]
    assert peak < 5 * letters


def test_what_is_written_is_read_again(tmp_path):
    names, sequences = ["a b", "c", "d"], ["ACGT" * 40, "A" * 60, "C"]
    write_fasta(tmp_path / "new" / "a.fa", names, sequences)
    assert content(tmp_path / "new" / "a.fa") == dict(zip(names, sequences))
    assert max(map(len, (tmp_path / "new" / "a.fa").read_text().splitlines())) == 60
