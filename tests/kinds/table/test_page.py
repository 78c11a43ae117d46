"""Rows of a table in the studio: a form, and the distribution of its empty fields."""

import pytest
import torch

from support.tables import read_text

pytest.importorskip("pandas")
from usd3.kinds.rendering import Request

ROWS = [
    (17 + i % 50, "FM"[i % 2], f"town {i % 230}", ["cook", "smith", ""][i % 3], f"1999-0{1 + i % 9}-11")
    for i in range(460)
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    text = "age,sex,town,job,born\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)
    return read_text(tmp_path_factory.mktemp("table"), text).kind.page(Request())


def test_the_form_has_a_field_for_each_column(page):
    fields = {field["name"]: field for field in page.editor()["columns"]}
    assert fields["sex"]["kind"] == "category"
    assert sorted(fields["sex"]["values"]) == ["F", "M"]
    assert not fields["sex"]["more"]
    assert (fields["age"]["kind"], fields["age"]["low"], fields["age"]["high"]) == ("number", "17", "66")
    assert (fields["born"]["kind"], fields["born"]["low"], fields["born"]["high"]) == (
        "date",
        "1999-01-11",
        "1999-09-11",
    )
    assert len(fields["town"]["values"]) == 200
    assert fields["town"]["more"]


def test_what_was_typed_stays_letter_by_letter(page):
    prompt = page.from_page([{"age": "30", "job": "  "}])
    assert prompt.given.tolist() == [[True, False, False, False, False]]
    rows = page.to_page(prompt.tokens.expand(3, -1), prompt, seed=1)
    assert [row["age"] for row in rows] == ["30"] * 3
    assert all(set(row) == {"age", "sex", "town", "job", "born"} for row in rows)


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"agee": "3"}, "is age meant"),
        ({"age": 30}, "a text"),
        ({"age": "old"}, "a number"),
        ({"sex": "X"}, "one of"),
        ({"town": "t" * 300}, "300 letters"),
        ({"born": "yesterday"}, "born"),
        ([], "a mapping"),
        ({"age": ["30"]}, "a text"),
    ],
)
def test_wrong_rows_say_which_field_is_wrong(row, word, page):
    with pytest.raises((ValueError, TypeError), match=word):
        page.from_page([row])


def test_shares_are_those_of_the_drawn_rows(page):
    prompt = page.from_page([{"sex": "F"}])
    names = page.kind.names
    tokens = torch.zeros(10, 5, dtype=torch.long)
    job = page.kind.schema[names.index("job")]
    tokens[:4, names.index("job")] = job.size - 1
    shares = page.shares(tokens, prompt)
    assert set(shares) == {"age", "town", "job", "born"}
    assert dict(shares["job"])["(missing)"] == 0.4
    assert len(shares["age"]) <= 21
    assert shares["age"][0][1] == 1.0
    assert all(sum(share for _, share in column) == pytest.approx(1, abs=0.01) for column in shares.values())
    spread = torch.arange(200)[:, None].expand(-1, 5) % torch.tensor([column.size for column in page.kind.schema])
    towns = page.shares(spread, prompt)["town"]
    assert towns[-1][0] == "(others)"
    assert len(towns) == 21


@pytest.mark.filterwarnings("ignore:age in row 1 of the form")
def test_a_number_that_the_data_have_not_is_said(page):
    tokens = torch.zeros(1, 5, dtype=torch.long)
    assert page.notes(tokens, page.from_page([{"age": "30", "sex": "F"}])) == []
    said = page.notes(tokens, page.from_page([{"age": "200"}]))
    assert said == ["age = 200: treated as the nearest; age has: 17..66"]


def test_files_hold_the_rows_that_were_shown(page, tmp_path):
    row = {"age": "30", "sex": "F", "town": "town 3", "job": "", "born": "1999-01-11"}
    page.write([row], tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "age,sex,town,job,born\n30,F,town 3,,1999-01-11\n"
    read, notes = page.read(tmp_path / "a.csv")
    assert read == row | {"job": None}
    assert notes == []
