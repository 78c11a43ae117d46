import math
from pathlib import Path

import pytest

from support.pixels import has, pixels
from usd3.evaluation.comparison import METRICS, Row
from usd3.evaluation.plots import BEST, LINES, OTHERS, SECOND, metrics_plot, training_plot
from usd3.metrics.summary import Summary
from usd3.training.logs import held_out_curves

FEW = [*METRICS][:3]


def methods(count: int, label: str = "m", metrics=METRICS) -> list[Row]:
    return [Row(f"{label}{i}", {key: Summary(0.1 * (i + 1), 0.01) for key in metrics}) for i in range(count)]


def log(folder: Path, text: str, version: int = 0) -> Path:
    (folder / f"logs/version_{version}").mkdir(parents=True)
    (folder / f"logs/version_{version}/metrics.csv").write_text(text)
    return folder


def test_the_best_two_are_in_colour(tmp_path):
    chain = [Row("Markov chain", {key: Summary(0.5, 0.0) for key in FEW})]
    for count, colours in ((1, (False, False)), (2, (True, False)), (4, (True, True))):
        metrics_plot(methods(count, metrics=FEW), tmp_path / f"{count}.png")
        picture = pixels(tmp_path / f"{count}.png")
        assert (has(picture, BEST), has(picture, SECOND)) == colours
        assert has(picture, OTHERS)
    metrics_plot(methods(2, metrics=FEW), tmp_path / "chain.png", chain)
    assert pixels(tmp_path / "chain.png").shape == pixels(tmp_path / "2.png").shape


def test_long_names_make_the_picture_wider_and_many_make_it_higher(tmp_path):
    drawn = {
        "short": methods(3, metrics=FEW),
        "long": methods(3, "m" * 60, metrics=FEW),
        "many": methods(12, metrics=FEW),
    }
    for name, rows in drawn.items():
        metrics_plot(rows, tmp_path / f"{name}.png")
    short, long, many = (pixels(tmp_path / f"{name}.png") for name in drawn)
    assert long.shape[1] > short.shape[1] + 500
    assert many.shape[0] > short.shape[0] + 300


def test_metrics_nobody_has_get_no_panel(tmp_path):
    few = [Row(row.label, {key: row.metrics[key] for key in ("1g_hellinger", "edit_diversity")}) for row in methods(2)]
    few[1].metrics["1g_hellinger"] = Summary(math.nan, math.nan)
    metrics_plot(few, tmp_path / "few.png")
    metrics_plot(methods(2, metrics=[*METRICS][:5]), tmp_path / "all.png")
    assert pixels(tmp_path / "few.png").shape[0] < 0.7 * pixels(tmp_path / "all.png").shape[0]
    with pytest.raises(ValueError, match="at least one method"):
        metrics_plot([], tmp_path / "none.png")


def test_curves_are_against_minutes_or_steps_where_a_log_has_no_minutes(tmp_path):
    timed = log(tmp_path / "a", "step,minutes,train/loss,val/bits_per_element\n5,0.1,1,\n5,0.1,,3\n9,0.2,,2.5\n")
    log(timed, "step,minutes,val/bits_per_element\n9,0.3,2\n", version=1)
    plain = log(tmp_path / "b", "step,val/bits_per_element\n5,4\n")
    silent = log(tmp_path / "c", "step,minutes,train/loss\n5,1.0,4\n")
    unit, curves = held_out_curves({"a": timed, "c": silent, "nothing": tmp_path / "d"})
    assert unit == "minutes of training"
    assert {name: curve.tolist() for name, curve in curves.items()} == {"a": [[0.1, 3], [0.3, 2]]}
    unit, curves = held_out_curves({"a": timed, "b": plain})
    assert unit == "training steps"
    assert {name: curve.tolist() for name, curve in curves.items()} == {"a": [[5, 3], [9, 2]], "b": [[5, 4]]}
    assert training_plot({"a": timed, "b": plain}, tmp_path / "x.png")
    picture = pixels(tmp_path / "x.png")
    assert has(picture, LINES[0])
    assert has(picture, LINES[1])
    assert not training_plot({"c": silent}, tmp_path / "y.png")
    assert not (tmp_path / "y.png").exists()
