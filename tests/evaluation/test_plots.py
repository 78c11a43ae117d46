import math
from pathlib import Path

import pytest

from support.pixels import has, pixels
from usd3.evaluation.comparison import METRICS, Row
from usd3.evaluation.plots import LINES, OTHERS, Look, metrics_plot, training_plot
from usd3.metrics.summary import Summary
from usd3.training.logs import held_out_curves

FEW = [*METRICS][:3]


def methods(count: int, label: str = "m", metrics=METRICS) -> list[Row]:
    return [Row(f"{label}{i}", {key: Summary(0.1 * (i + 1), 0.01) for key in metrics}) for i in range(count)]


def log(folder: Path, text: str, version: int = 0) -> Path:
    (folder / f"logs/version_{version}").mkdir(parents=True)
    (folder / f"logs/version_{version}/metrics.csv").write_text(text)
    return folder


def test_methods_of_a_family_share_a_colour_and_differ_in_dashes(tmp_path):
    rows = methods(3, metrics=FEW)
    looks = {"m0": Look("a"), "m1": Look("a", discrete=True), "m2": Look("b")}
    metrics_plot(rows, tmp_path / "x.png", looks=looks)
    picture = pixels(tmp_path / "x.png")
    assert [has(picture, colour) for colour in LINES[:3]] == [True, True, False]
    metrics_plot(rows, tmp_path / "y.png")
    assert all(has(pixels(tmp_path / "y.png"), colour) for colour in LINES[:3])


def test_a_reference_row_far_from_the_methods_is_written_and_does_not_press_them_together(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr("usd3.evaluation.plots.save", lambda figure, path: figures.append(figure))
    rows = [Row(f"m{i}", {FEW[0]: Summary(0.40 + 0.01 * i, 0.0)}) for i in range(3)]
    near, far = (Row(name, {FEW[0]: Summary(value, 0.0)}) for name, value in (("near", 0.41), ("far", 0.9)))
    metrics_plot(rows, tmp_path / "x.png", [near, far])
    panel = figures[0].axes[0]
    assert panel.get_xlim()[1] < 0.5
    assert panel.get_xlabel() == "near 0.410\nfar 0.900 →"
    assert [line.get_xdata()[0] for line in panel.lines if line.get_color() == OTHERS] == [0.41]


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


def test_curves_are_against_the_steps(tmp_path):
    timed = log(tmp_path / "a", "step,minutes,train/loss,val/bits_per_element\n5,0.1,1,\n5,0.1,,3\n9,0.2,,2.5\n")
    log(timed, "step,minutes,val/bits_per_element\n9,0.3,2\n", version=1)
    silent = log(tmp_path / "c", "step,minutes,train/loss\n5,1.0,4\n")
    curves = held_out_curves({"a": timed, "c": silent, "nothing": tmp_path / "d"})
    assert {name: curve.tolist() for name, curve in curves.items()} == {"a": [[5, 3], [9, 2]]}
    assert not training_plot({"c": silent}, tmp_path / "y.png")
    assert not (tmp_path / "y.png").exists()


def test_the_trainings_of_a_method_look_alike_and_have_one_name(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr("usd3.evaluation.plots.save", lambda figure, path: figures.append(figure))
    runs = {name: log(tmp_path / name, "step,val/bits_per_element\n5,4\n9,3\n") for name in ("a", "a-2", "b")}
    looks = {"a": Look("a"), "a-2": Look("a"), "b": Look("a", discrete=True)}
    assert training_plot(runs, tmp_path / "x.png", looks)
    lines = figures[0].axes[0].lines
    assert [line.get_color() for line in lines] == [LINES[0]] * 3
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--"]
    names = [[text.get_text() for text in legend.get_texts()] for legend in figures[0].legends]
    assert names == [["a", "b"], ["continuous time", "discrete time"]]
