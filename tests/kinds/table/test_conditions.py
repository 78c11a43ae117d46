"""The text of conditions, and mappings."""

import pytest

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
    ],
)
def test_a_mapping_says_what_a_column_may_have(value, choices):
    assert one({"age": value}) == Condition("age", choices)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="where is a list: expected a mapping, or a text"):
        conditions_of(["sex=Female"], NAMES)
    with pytest.raises(ValueError, match="where = =5: expected conditions such as"):
        conditions_of("=5", NAMES)
