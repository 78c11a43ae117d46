"""The text of conditions, and mappings."""

import numpy as np
import pandas as pd
import pytest

from support.tables import read_frame, read_text
from usd3.kinds.table.conditions import Choice, Condition, conditions_of

NAMES = ["sex", "age", "marital status", "a=b", "city", "income"]


def one(where):
    (condition,) = conditions_of(where, NAMES)
    return condition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sex=Female", Condition("sex", (Choice("Female"),))),
        (" sex = Female ", Condition("sex", (Choice("Female"),))),
        ("sex!=Female", Condition("sex", (Choice("Female"),), excluded=True)),
        ("city=Paris|Rome", Condition("city", (Choice("Paris"), Choice("Rome")))),
        ("age=30..40", Condition("age", (Choice("30..40", "30", "40", True),))),
        ("age=30..", Condition("age", (Choice("30..", "30", None, True),))),
        ("age=..40", Condition("age", (Choice("..40", None, "40", True),))),
        ("age=-5..-1|7", Condition("age", (Choice("-5..-1", "-5", "-1", True), Choice("7")))),
        ("city=", Condition("city", (Choice(),))),
        ("city=Paris|", Condition("city", (Choice("Paris"), Choice()))),
        ('city=""', Condition("city", (Choice(""),))),
        ('city="a,b|c..d"', Condition("city", (Choice("a,b|c..d"),))),
        ('city="say ""hi"""|x', Condition("city", (Choice('say "hi"'), Choice("x")))),
        ("marital status=single", Condition("marital status", (Choice("single"),))),
        ('income="1,5".."2,5"', Condition("income", (Choice('"1,5".."2,5"', "1,5", "2,5", True),))),
        ('income="1,5"..', Condition("income", (Choice('"1,5"..', "1,5", None, True),))),
        ('"a=b"=1', Condition("a=b", (Choice("1"),))),
        ("income=<=50K", Condition("income", (Choice("<=50K"),))),
        ("income!=>50K", Condition("income", (Choice(">50K"),), excluded=True)),
    ],
)
def test_a_text_says_what_a_column_may_have(text, expected):
    assert one(text) == expected


def test_commas_separate_conditions():
    found = conditions_of("sex=Female,age=30..40,age!=33", NAMES)
    assert [(str(condition), condition.excluded) for condition in found] == [
        ("sex=Female", False),
        ("age=30..40", False),
        ("age!=33", True),
    ]


@pytest.mark.parametrize(
    ("value", "choices"),
    [
        ("Female", (Choice("Female"),)),
        (30, (Choice(30),)),
        (None, (Choice(),)),
        ((30, 40), (Choice(low=30, high=40, is_range=True),)),
        ((30, None), (Choice(low=30, is_range=True),)),
        ([1, (3, 4), None], (Choice(1), Choice(low=3, high=4, is_range=True), Choice())),
        ({5}, (Choice(5),)),
        (range(3, 5), (Choice(3), Choice(4))),
        (np.array([3, 4]), (Choice(3), Choice(4))),
        (pd.Series([3, 4]), (Choice(3), Choice(4))),
        (pd.Index(["a"]), (Choice("a"),)),
    ],
)
def test_a_mapping_says_what_a_column_may_have(value, choices):
    assert one({"age": value}) == Condition("age", choices)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="where is a list: expected a mapping, or a text"):
        conditions_of(["sex=Female"], NAMES)
    with pytest.raises(ValueError, match="where = =5: expected conditions such as"):
        conditions_of("=5", NAMES)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("age>=30", r"where = age>=30: expected a range, age=30\.\., with 30 included"),
        ("sex=a,age <= 40", r"where = age <=40: expected a range, age=\.\.40, with 40 included"),
        ("age>30", r"'age>30' has no = \(ranges are age=30\.\. and age=\.\.40\)"),
        ("income=1,5", r"'5' has no = \(quotes protect a comma: size=\"1,5\"\)"),
        ("age", "'age' has no =$"),
        ("note=x", "column in where = note: expected one of sex, .*, income, as the model learnt without note"),
    ],
)
def test_what_is_meant_otherwise_is_refused_with_how_to_write_it(where, message):
    with pytest.raises(ValueError, match=message):
        conditions_of(where, NAMES, ["note", *NAMES])


def test_a_column_whose_name_ends_with_a_sign_is_one():
    assert conditions_of("age>=30", ["age", "age>"])[0].column == "age>"


# ---- columns ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kind():
    frame = pd.DataFrame({"age": range(20, 60), "city": ["Rome", "Paris"] * 20, "note": [f"n{i}" for i in range(40)]})
    return read_frame(frame, columns={"age": "number", "note": "ignore"}).kind


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "age=20..30,age=40..50",
            r"expected conditions that hold together, .*; one or the other is age=20\.\.30\|40\.\.50",
        ),
        ("city=Rome,city=Paris", r"where = city=Rome,city=Paris: expected .* one or the other is city=Rome\|Paris"),
        ("city=Rome,city!=Rome", "expected conditions that hold together, as a cell meets all of them$"),
        ("age=20..30,age=200..", r"where = age=200\.\.: expected something that age has: 20\.\.59"),
        ({"note": "n1"}, "column in where = note: expected one of age, city, as the model learnt without note"),
    ],
)
def test_conditions_that_no_row_meets_say_why(where, message, kind):
    with pytest.raises(ValueError, match=message):
        kind.weights(where)


def test_lists_of_numpy_and_pandas_are_alternatives(kind):
    expected = kind.weights("age=30|31,city=Rome")
    for ages in (range(30, 32), np.array([30, 31]), pd.Series([30, 31])):
        assert kind.weights({"age": ages, "city": np.array(["Rome"])}).equal(expected)


def test_a_column_with_a_decimal_comma_takes_a_comma_or_a_point(tmp_path):
    kind = read_text(tmp_path, "size;x\n" + "1,5;a\n2,5;b\n3,5;a\n" * 10).kind
    for where in (
        'size="1,5".."2,5"',
        "size=1.5..2.5",
        {"size": ("1,5", "2,5")},
        {"size": (1.5, 2.5)},
        'size="1,5"|2.5',
    ):
        assert kind.weights(where)[0].tolist() == [1, 1, 0]
