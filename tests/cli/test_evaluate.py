"""The files that `usd3 evaluate` writes; what it measures is in tests/evaluation."""

import json

from usd3.cli.evaluate import as_json


def test_results_have_each_list_of_numbers_in_one_line():
    results = {
        "per_object": {"nats": [1.5, -2e-07, None, 3], "group": [4]},
        "empty": [],
        "names": ["a", "[\n  1\n]", "b [ 1 ]"],
        "nested": [[1, 2], [3, 4]],
        "rows": [{"mean": 1.0}],
    }
    text = as_json(results)
    assert json.loads(text) == results
    lines = [line.strip() for line in text.splitlines()]
    assert '"nats": [1.5, -2e-07, null, 3],' in lines
    assert '"group": [4]' in lines
    assert lines.count("[1, 2],") == 1
    assert '"mean": 1.0' in lines
