"""Files of text and Parquet files: their form, their rows, and new rows written in the same form."""

import codecs
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from support.tables import adult_text, all_rows, mixed_frame, mushroom_text, read_frame, read_text
from usd3.kinds.options import DataConfig
from usd3.kinds.table.files import _has_same_width, source_of
from usd3.kinds.table.options import TableOptions
from usd3.kinds.table.sniff import form_of_file

TEXT = "name,size,when\nred,1.5,2020-01-31\ngreen,2.5,2021-02-28\n" + "red,3.5,2022-03-31\ngreen,1.5,2020-01-31\n" * 10


def form(folder, text, name="table.csv", named=None, **options):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return form_of_file(path, TableOptions(**options), named)


def frame_of(folder, text, name="table.csv", **options):
    """All cells as texts."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return pd.concat(list(source_of(str(path), TableOptions(**options)).chunks()), ignore_index=True)


# ---- the form of a file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_told(delimiter, tmp_path):
    text = TEXT.replace(",", delimiter)
    found = form(tmp_path, text)
    assert (found.delimiter, found.names) == (delimiter, ("name", "size", "when"))
    assert frame_of(tmp_path, text).iloc[0].tolist() == ["red", "1.5", "2020-01-31"]


def test_commas_inside_of_cells_are_no_delimiters(tmp_path):
    found = form(tmp_path, 'name;size\n"a, b";1,5\n"c, d";2,5\n')
    assert (found.delimiter, found.padded) == (";", False)
    assert form(tmp_path, '"a;b",c\n"d;e",f\n').delimiter == ","
    assert form(tmp_path, "1,5;2,5\n2,5;3,5\n", header=False).delimiter == ";"


def test_the_user_says_the_delimiter(tmp_path):
    assert form(tmp_path, "a b\n1 2\n", delimiter=" ").names == ("a", "b")
    assert form(tmp_path, "a;b\n1;2\n", "x.tsv", delimiter=";").names == ("a", "b")
    assert form(tmp_path, "a,b\tc\n1,2\t3\n", "x.tsv").names == ("a,b", "c")


@pytest.mark.parametrize(
    ("text", "header"),
    [
        (TEXT, True),
        (TEXT.partition("\n")[2], False),
        (adult_text(), False),
        (mushroom_text(), True),
        (mushroom_text().partition("\n")[2], False),
        ("a,b\nx,y\n", True),
        (",x\n0,1.5\n1,2.5\n2,3.5\n", True),
        ("2020-01-01,1\n2020-01-02,2\n2020-01-03,3\n", False),
        ("first,second\n?,1\nb,2\n", True),
    ],
)
@pytest.mark.filterwarnings("ignore:.*column 1 has no name")
def test_a_header_is_told_from_rows(text, header, tmp_path):
    assert form(tmp_path, text).header is header


def test_the_user_says_whether_there_is_a_header(tmp_path):
    assert form(tmp_path, TEXT, header=False).names == ("column_1", "column_2", "column_3")
    assert form(tmp_path, "1,2\n3,4\n", header=True).names == ("1", "2")


def test_the_user_names_the_columns(tmp_path):
    kind = read_text(tmp_path, adult_text(), names=list("abcdefghi")).kind
    assert kind.names == list("abcdefghi")
    with pytest.raises(ValueError, match=r"data\.table\.names = 2 names: expected 9, one for each column"):
        read_text(tmp_path, adult_text(), names=["a", "b"])


def test_names_that_are_missing_or_repeated_are_changed_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="it becomes") as caught:
        found = form(tmp_path, ",a,a,a_2\n1,2,3,4\n5,6,7,8\n")
    assert found.names == ("column_1", "a", "a_2", "a_2_2")
    messages = [str(warning.message).partition(": ")[2] for warning in caught]
    assert messages == [
        "column 1 has no name; it becomes column_1",
        "column 3 is called 'a', as another one is; it becomes a_2",
        "column 4 is called 'a_2', as another one is; it becomes a_2_2",
    ]


def test_a_first_line_with_known_names_is_a_header(tmp_path):
    """As in a prompt: few rows, which tell little."""
    assert form(tmp_path, "sex,age\n,\n", named=["age", "sex", "x"]).header
    assert form(tmp_path, "sex,agee\nMale,1\n", named=["age", "sex", "x"]).header
    assert not form(tmp_path, "Male,1\n", named=["age", "sex"]).header


# ---- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "found"), [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16")])
def test_unicode_is_told_from_the_first_bytes(encoding, found, tmp_path):
    text = "größe,ort\n1,Köln\n2,Århus\n" * 1
    assert form(tmp_path, text.encode(encoding)).encoding == found
    frame = frame_of(tmp_path, text.encode(encoding))
    assert list(frame.columns) == ["größe", "ort"]
    assert frame["ort"].tolist() == ["Köln", "Århus"]


def test_other_encodings_are_guessed_with_a_warning_or_said(tmp_path):
    text = "größe,ort\n1,Köln\n2,Århus\n"
    with pytest.warns(UserWarning, match=r"table.csv is read as cp1252: --data.table.encoding NAME .* byte 2 is no"):
        assert frame_of(tmp_path, text.encode("cp1252"))["ort"].tolist() == ["Köln", "Århus"]
    assert frame_of(tmp_path, text.encode("cp1252"), encoding="cp1252")["ort"].tolist() == ["Köln", "Århus"]
    with pytest.warns(UserWarning, match="is read as latin-1"):
        frame_of(tmp_path, text.encode("latin-1") + b"3,\x81\n")
    with pytest.raises(ValueError, match=r"data\.table\.encoding = ascii: expected the encoding of"):
        frame_of(tmp_path, text, encoding="ascii")


def test_bytes_that_are_no_utf_8_are_found_also_far_behind(tmp_path):
    text = ("a,b\n" + "x,1\ny,2\n" * 60_000).encode() + "ß,3\n".encode("latin-1")
    with pytest.warns(UserWarning, match="is read as cp1252"):
        assert frame_of(tmp_path, text)["a"].iloc[-1] == "ß"


def test_windows_line_ends_are_read_and_written(tmp_path):
    dataset = read_text(tmp_path, TEXT.replace("\n", "\r\n"))
    assert dataset.kind.form.newline == "\r\n"
    assert {column.type for column in dataset.kind.schema} == {"category", "ordered", "date"}
    dataset.kind.write(dataset.test.tokens.long(), tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_bytes().count(b"\r\n") == 1 + len(dataset.test)


def test_quoted_cells_may_hold_anything(tmp_path):
    text = 'a,b\n"x, y","say ""hi"""\n"two\nlines",z\n"x, y",z\n'
    frame = frame_of(tmp_path, text)
    assert frame["a"].tolist() == ["x, y", "two\nlines", "x, y"]
    assert frame["b"].tolist() == ['say "hi"', "z", "z"]


def test_quoted_cells_after_padding_are_read(tmp_path):
    frame = frame_of(tmp_path, 'a, b, c\nx, "y, z", 1\nu, v, 2\n')
    assert frame.iloc[0].tolist() == ["x", "y, z", "1"]


# ---- lines that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "seen"), [("red,1.5", "2 cells"), ("red,1,2,3", "4 cells"), ("red", "1 cell"), ('"a,b",1', "2 cells")]
)
def test_a_ragged_line_is_refused_with_its_number(line, seen, tmp_path):
    lines = TEXT.splitlines()
    lines.insert(7, line)
    with pytest.raises(ValueError, match=rf"line 8 of .*table.csv = {seen}: expected 3, as the first line has"):
        read_text(tmp_path, "\n".join(lines) + "\n")


def test_the_number_of_a_line_counts_lines_inside_of_quotes(tmp_path):
    with pytest.raises(ValueError, match=r"line 5 of .* = 1 cell: expected 2"):
        read_text(tmp_path, 'a,b\n"1\n2\n",3\nx\n4,5\n')


def test_a_quote_without_an_end_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 2 of .*table.csv: expected cells with a closing quote"):
        read_text(tmp_path, 'a,b\n"x,1\ny,2\n')


def test_empty_lines_do_not_count(tmp_path):
    assert len(frame_of(tmp_path, TEXT + "\n\n")) == 22
    assert len(frame_of(tmp_path, TEXT.replace("\n", "\r\n") + "\r\n")) == 22


def test_a_quote_inside_of_a_cell_is_a_letter(tmp_path):
    text = 'a,b\n5" pipe,1\n6" pipe,2\n7" pipe,3\n'
    assert not _has_same_width(tmp_path / "x", form(tmp_path, text, "x"))  # the fast count is in doubt
    assert frame_of(tmp_path, text)["a"].tolist() == ['5" pipe', '6" pipe', '7" pipe']


def test_the_fast_count_of_cells_sees_blocks_and_quotes(tmp_path, monkeypatch):
    from usd3.kinds.table import files

    monkeypatch.setattr(files, "_BLOCK", 64)
    text = "a,b\n" + 'x,"1,2"\n"y\n",3\n' * 50
    found = form(tmp_path, text, "x")
    assert _has_same_width(tmp_path / "x", found)
    (tmp_path / "x").write_text(text + "z\n")
    assert not _has_same_width(tmp_path / "x", found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file: expected rows of cells"),
        ("a,b\n", "rows of table.csv = 0: expected at least 2"),
        ("a,b\n1,2\n", "rows of table.csv = 1: expected at least 2"),
    ],
)
def test_a_table_without_rows_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_text(tmp_path, text, header=True)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv: no such file; expected a table that ends with \.csv"):
        DataConfig("table", str(tmp_path / "none.csv")).load()
    with pytest.raises(FileNotFoundError, match="a folder; expected a table"):
        DataConfig("table", str(tmp_path)).load()


def test_binary_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="expected a Parquet file"):
        read_text(tmp_path, b"nonsense", "x.parquet")


@pytest.mark.parametrize("name", ["pandas", "pyarrow.parquet"])
def test_without_pandas_and_pyarrow_the_error_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    file = "x.csv" if name == "pandas" else "x.parquet"
    expected = rf"{file} needs {name.partition('.')[0]}: pip install 'usd3\[tables\]'"
    with pytest.raises(ImportError, match=expected):
        read_text(tmp_path, TEXT, file)


# ---- Parquet ------------------------------------------------------------------------------------------------------


def test_a_parquet_file_is_read_and_written_with_its_dtypes(tmp_path):
    frame = mixed_frame()
    frame.to_parquet(tmp_path / "in.parquet")
    dataset = DataConfig("table", str(tmp_path / "in.parquet")).load()
    tokens = torch.from_numpy(all_rows(dataset)).long()
    dataset.kind.write(tokens, tmp_path / "out.parquet")
    back = pd.read_parquet(tmp_path / "out.parquet")
    assert dict(back.dtypes) == dict(pd.read_parquet(tmp_path / "in.parquet").dtypes)
    assert back.equals(dataset.kind.objects(tokens))


def test_a_parquet_file_of_several_groups_is_read_like_one(tmp_path, monkeypatch):
    frame = mixed_frame().drop(columns="object")
    frame.to_parquet(tmp_path / "many.parquet", row_group_size=30)
    frame.to_parquet(tmp_path / "one.parquet")
    many, one = (DataConfig("table", str(tmp_path / f"{name}.parquet")).load() for name in ("many", "one"))
    assert np.array_equal(all_rows(many), all_rows(one))


def test_groups_of_a_parquet_file_may_have_different_dictionaries(tmp_path):
    groups = [["a", "b"] * 20, ["b", "c"] * 20]
    schema = pa.schema([("letter", pa.dictionary(pa.int32(), pa.string())), ("number", pa.int64())])
    with pq.ParquetWriter(tmp_path / "in.parquet", schema) as writer:
        for group in groups:
            columns = {"letter": pa.array(group).dictionary_encode(), "number": pa.array([1, 2] * 20)}
            writer.write_table(pa.table(columns))
    dataset = DataConfig("table", str(tmp_path / "in.parquet")).load()
    letters = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["letter"]
    assert letters.cat.categories.tolist() == ["a", "b", "c"]
    assert letters.value_counts().to_dict() == {"a": 20, "b": 40, "c": 20}


def test_a_named_index_of_a_parquet_file_is_a_column(tmp_path):
    frame = pd.DataFrame({"city": ["Rome", "Paris"] * 20, "year": [1, 2, 3, 4] * 10, "size": [5, 6] * 20})
    frame.set_index(["city", "year"]).to_parquet(tmp_path / "in.parquet")
    kind = DataConfig("table", str(tmp_path / "in.parquet")).load().kind
    assert sorted(kind.names) == ["city", "size", "year"]
    frame.set_axis([0, 1, 2], axis=1).to_parquet(tmp_path / "numbers.parquet")
    assert sorted(DataConfig("table", str(tmp_path / "numbers.parquet")).load().kind.names) == ["0", "1", "2"]


def test_integers_with_nulls_in_a_parquet_file_stay_integers(tmp_path):
    values = {"large": [2**60 + 1, None, 2**60 + 3, 7], "short": [1, None, 3, 4], "beyond": [2**64 - 3, None, 2, 3]}
    types = {"large": pa.int64(), "short": pa.int16(), "beyond": pa.uint64()}
    columns = {name: pa.array(cells * 20, types[name]) for name, cells in values.items()}
    pq.write_table(pa.table(columns | {"full": pa.array([1, 2, 3, 4] * 20)}), tmp_path / "in.parquet")
    dataset = DataConfig("table", str(tmp_path / "in.parquet")).load()
    types = ["Int64", "Int16", "UInt64", "int64"]
    assert [column.dtype for column in dataset.kind.schema] == types
    assert [column.type for column in dataset.kind.schema] == ["ordered", "ordered", "category", "ordered"]
    tokens = torch.from_numpy(all_rows(dataset))
    back = dataset.kind.objects(tokens)
    for name, cells in values.items():
        assert set(back[name].dropna()) == {cell for cell in cells if cell is not None}
    dataset.kind.write(tokens, tmp_path / "out.parquet")
    assert [str(kind) for kind in pq.read_schema(tmp_path / "out.parquet").types] == [
        "int64",
        "int16",
        "uint64",
        "int64",
    ]
    dataset.kind.write(tokens, tmp_path / "out.csv")
    assert {line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]} == {"1", "3", "4", ""}


# ---- writing ------------------------------------------------------------------------------------------------------


def written(dataset, path, seed=0):
    tokens = torch.from_numpy(all_rows(dataset)).long()
    dataset.kind.write(tokens, path)
    return path.read_text(encoding=dataset.kind.form.encoding)


def test_new_rows_have_the_form_of_adult(tmp_path):
    dataset = read_text(tmp_path, adult_text(), "adult.data")
    text = written(dataset, tmp_path / "new.data")
    lines = text.splitlines()
    assert len(lines) == 300
    assert all(line.count(", ") == line.count(",") == 8 for line in lines)
    assert any(", ?, " in line for line in lines)
    again = read_text(tmp_path, text, "again.data")
    assert [column.type for column in again.kind.schema] == [column.type for column in dataset.kind.schema]


def test_new_rows_keep_delimiter_header_and_encoding(tmp_path):
    text = codecs.BOM_UTF8 + 'größe;"a;b"\n1,50;x\n2,25;"y;z"\n'.encode() * 1 + b"1,50;x\n" * 20
    dataset = read_text(tmp_path, text)
    new = (tmp_path / "new.csv", tmp_path / "new.tsv")
    first = written(dataset, new[0])
    assert new[0].read_bytes().startswith(codecs.BOM_UTF8)
    assert first.splitlines()[0] == 'größe;"a;b"'
    assert set(first.splitlines()[1:]) <= {"1,50;x", '2,25;"y;z"', '1,50;"y;z"', "2,25;x"}
    assert written(dataset, new[1]).splitlines()[0] == "größe\ta;b"


def test_a_table_of_one_column_with_missing_cells_is_written_without_empty_lines(tmp_path):
    dataset = read_frame(pd.DataFrame({"x": [1, None, 2] * 10}))
    text = written(dataset, tmp_path / "new.csv")
    assert text.count("\n") == 31
    assert text.count('""') == 10


def test_a_data_frame_is_written_with_a_header_and_iso_dates(tmp_path):
    dataset = read_frame(mixed_frame())
    text = written(dataset, tmp_path / "new.csv")
    head, first = text.splitlines()[:2]
    assert head.split(",") == dataset.kind.names
    cells = dict(zip(head.split(","), first.split(",")))
    assert pd.Timestamp(cells["time"]).strftime("%Y-%m-%d %H:%M:%S") == cells["time"]
    assert cells["flag"] in ("True", "False")


def test_tables_cannot_be_written_over_others_or_as_something_else(tmp_path):
    dataset = read_text(tmp_path, TEXT)
    (tmp_path / "taken.csv").write_text("mine")
    for name, message in (("taken.csv", "a name that is not taken"), ("x.xlsx", r"ends with \.npz, \.csv, \.tsv")):
        with pytest.raises(ValueError, match=message):
            dataset.kind.write(dataset.test.tokens.long(), tmp_path / name)
    assert (tmp_path / "taken.csv").read_text() == "mine"
