"""Files that are no text, or not in the encoding that they should have, and how delimiters are said."""

import io

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import all_rows, read_text
from usd3.kinds.table import sniff
from usd3.kinds.table.form import TableForm
from usd3.kinds.table.options import TableOptions

TEXT = "name,size\n" + "red,1.5\ngreen,2.5\n" * 20


def parquet_bytes():
    buffer = io.BytesIO()
    pd.DataFrame({"x": np.arange(100)}).to_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (parquet_bytes(), "a Parquet file, whose name ends with .parquet"),
        (b"PK\x03\x04\x14\x00" + bytes(100), "an Excel or zip file: save the table as CSV"),
        (b"\x1f\x8b\x08\x00" + bytes(6), "a gzip file: unpack it"),
        (TEXT.encode("utf-16-le"), "UTF-16 without a mark: --data.table.encoding utf-16-le"),
        (TEXT.encode("utf-16-be"), "UTF-16 without a mark: --data.table.encoding utf-16-be"),
        (b"a,b\n1,\0\n2,3\n", "a binary file"),
    ],
)
def test_a_file_that_is_no_text_is_refused_with_what_it_seems_to_be(content, seems, tmp_path):
    expected = rf"table\.csv: NUL characters, the first at byte \d+: expected text \(it seems to be {seems}\)"
    with pytest.raises(ValueError, match=expected):
        read_text(tmp_path, content)


@pytest.mark.parametrize("quote", ["", '"a""b",1\n'])
def test_a_nul_character_far_behind_is_refused(quote, tmp_path, monkeypatch):
    """Also where lines are counted one by one."""
    monkeypatch.setattr(sniff, "_SAMPLE", 256)
    lines = TEXT + 'x"y,1\n' * bool(quote) + quote + "red,3\n" * 200 + "re\0d,4\n"
    with pytest.raises(ValueError, match=r"table\.csv(: NUL characters, the first at byte 1,\d+| = a NUL character)"):
        read_text(tmp_path, lines)


def test_unicode_without_a_mark_is_read_as_the_user_says(tmp_path):
    kind = read_text(tmp_path, TEXT.encode("utf-16-le"), encoding="UTF_16LE").kind
    assert kind.names == ["name", "size"]
    assert read_text(tmp_path, TEXT.encode("utf-32"), "other.csv").kind.form.encoding == "utf-32"
    with pytest.raises(ValueError, match=r"table\.csv = NUL characters in utf-16: expected text"):
        read_text(tmp_path, TEXT.encode("utf-32"), encoding="utf-16")


def test_an_encoding_that_needs_a_mark_is_named_where_the_file_has_none(tmp_path):
    with pytest.raises(ValueError, match=r"data\.table\.encoding = utf-16: expected the encoding of .*table\.csv"):
        read_text(tmp_path, TEXT, encoding="utf-16")


def test_a_tab_may_be_typed_with_a_backslash(tmp_path):
    kind = read_text(tmp_path, TEXT.replace(",", "\t"), delimiter="\\t").kind
    assert (kind.names, kind.form.delimiter) == (["name", "size"], "\t")
    assert TableOptions(delimiter="\\t").delimiter == "\t"


@pytest.mark.parametrize(
    ("trained", "delimiter", "ending", "expected"),
    [
        (".csv", "\t", ".csv", "\t"),
        (".csv", "\t", ".data", ","),
        (".csv", ";", ".data", ";"),
        (".csv", ";", ".tsv", "\t"),
        (".tsv", ";", ".tsv", ";"),
        (".tsv", "\t", ".csv", ","),
        ("", ",", ".csv", ","),
    ],
)
def test_the_delimiter_of_training_stays_where_the_ending_does(trained, delimiter, ending, expected):
    assert TableForm(ending=trained, delimiter=delimiter).delimiter_for(ending) == expected


def test_a_csv_file_with_tabs_is_written_with_tabs(tmp_path):
    dataset = read_text(tmp_path, TEXT.replace(",", "\t"))
    dataset.kind.write(torch.from_numpy(all_rows(dataset)).long(), tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()
    assert lines[0] == "name\tsize"
    assert all(line.count("\t") == 1 for line in lines)
