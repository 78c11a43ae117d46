"""Texts from files of every encoding, in blocks of any size."""

import pytest

from usd3.kinds.text import sources
from usd3.kinds.text.sources import TextFile, TextInMemory

TEXT = "Ein Häuschen — naïve,\n中文\n\U0001f600 end\n"


@pytest.fixture(params=[3, 2**22], ids=["small blocks", "one block"])
def file(request, tmp_path, monkeypatch):
    """A function that writes bytes and returns the text file."""
    monkeypatch.setattr(sources, "BLOCK", request.param)

    def write(content, encoding=None):
        (tmp_path / "book.txt").write_bytes(content)
        return TextFile(tmp_path / "book.txt", encoding)

    return write


def read(source):
    return "".join(source.chunks())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marks_and_utf8_are_recognised(file, encoding):
    text = file(TEXT.encode(encoding))
    assert read(text) == TEXT
    assert text.survey.length == len(TEXT)
    assert text.survey.alphabet == "".join(sorted(set(TEXT)))
    assert not text.survey.is_plain


def test_big_endian_utf16_is_recognised(file):
    assert read(file(b"\xfe\xff" + TEXT.encode("utf-16-be"))) == TEXT


def test_a_given_encoding_is_used(file):
    assert read(file("日本語\n".encode("shift_jis"), "shift_jis")) == "日本語\n"
    assert read(file(TEXT.encode("utf-16-le"), "utf-16-le")) == TEXT


def test_what_is_no_utf8_is_cp1252_with_a_warning(file):
    text = file("caf\u00e9 \u20ac5 \u201cso\u201d\n".encode("cp1252"))
    with pytest.warns(UserWarning, match=r"not UTF-8 \(byte 0xe9 at 3 is not utf-8\), so it is read as cp1252"):
        assert read(text) == "caf\u00e9 \u20ac5 \u201cso\u201d\n"
    assert text.encoding == "cp1252"


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_other_line_ends_become_one_character(file, ends):
    text = file("one\ntwo\n".replace("\n", ends).encode())
    assert read(text) == "one\ntwo\n"
    assert (text.survey.length, text.survey.line_ends) == (8, repr(ends))
    assert not text.survey.is_plain  # its bytes are not its characters


def test_ascii_is_plain_as_it_is(file):
    text = file(b"one\ntwo\n")
    assert text.survey == sources.Survey(8, "\nenotw", "", True)
    assert not file("\ufeffone\n".encode()).survey.is_plain


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"PNG\0\1", None, r"book\.txt: NUL characters, the first at byte 3: expected text .*utf-16-le; .*tokenizer"),
        ("ab".encode("utf-16-le"), None, "NUL characters, the first at byte 1"),
        (b"ab\x81\xff", None, r"neither UTF-8 nor cp1252 \(byte 0x81 at 2 is not utf-8\): --data.text.encoding"),
        (b"abcd\xff", "utf-8", "byte 0xff at 4 is not utf-8"),
        ("abc中".encode()[:-1], "utf-8", "byte 0xe4 at 3 is not utf-8"),
        (b"abc", "utf-16", r"book\.txt: .*utf-16.*--data.text.encoding says"),
    ],
)
def test_bytes_that_are_no_text_get_one_clear_line(file, content, encoding, message):
    with pytest.raises(ValueError, match=message):
        read(file(content, encoding))


@pytest.mark.parametrize("name", ["klingon", "rot13", "zip", "../evil", ""])
def test_an_unknown_encoding_is_refused(file, name):
    with pytest.raises(ValueError, match=r"data\.text\.encoding = .*: expected an encoding such as utf-8"):
        file(b"x", name)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt: no such file; expected a text file"):
        TextFile(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match="a folder; expected a text file"):
        TextFile(tmp_path)


def test_a_string_is_a_text_too():
    text = TextInMemory("one\r\ntwo")
    assert (read(text), text.survey.length, text.survey.alphabet) == ("one\ntwo", 7, "\nenotw")
    with pytest.raises(ValueError, match="the text = a NUL character at 1"):
        TextInMemory("a\0b")
