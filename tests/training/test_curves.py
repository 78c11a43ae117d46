import numpy as np
import pytest

from support.pixels import has, pixels
from usd3.pictures.figures import GENERATED
from usd3.training.curves import VALIDATION, _smooth, loss_plot
from usd3.training.logs import column, read_log

HEADER = "epoch,step,train/loss,train/bits_per_element,val/bits_per_element\n"
LOGS = {
    "usual": HEADER
    + "".join(f"0,{i},1,{2 + 1 / (i + 1)},\n" + f"0,{i},,,{3 + i % 2}\n" * (i % 50 == 49) for i in range(200)),
    "one row": HEADER + "0,0,1.0,2.0,\n",
    "only val": "step,val/bits_per_element\n1,2.5\n2,2.25\n",
    "only train": "step,train/bits_per_element\n1,2.5\n2,2.25\n3,nan\n",
    "constant": "step,train/bits_per_element\n" + "".join(f"{i},1\n" for i in range(30)),
}


@pytest.mark.parametrize("name", LOGS)
def test_loss_plot(name, tmp_path):
    (tmp_path / "metrics.csv").write_text(LOGS[name])
    loss_plot(tmp_path / "metrics.csv", tmp_path / "loss.png")
    picture = pixels(tmp_path / "loss.png")
    assert picture.shape == (640, 1280, 3)
    assert has(picture, GENERATED) == (name != "only val")
    assert has(picture, VALIDATION) == (name in ("usual", "only val"))


def test_a_resumed_run(tmp_path):
    """Rows of the later part replace those at or after its first step."""
    texts = {
        "first": HEADER + "0,10,1,5,\n0,20,1,4,\n0,20,,,4.5\n0,30,1,9,\n0,40,,,9\n",
        "second": HEADER + "0,30,1,3,\n0,40,1,2,\n0,40,,,2.5\n",
        "empty": HEADER,
        "whole": HEADER + "0,10,1,5,\n0,20,1,4,\n0,20,,,4.5\n0,30,1,3,\n0,40,1,2,\n0,40,,,2.5\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    parts = [tmp_path / "first", str(tmp_path / "second"), tmp_path / "empty"]
    log = read_log(parts)
    np.testing.assert_array_equal(column(log, "train/bits_per_element"), [[10, 5], [20, 4], [30, 3], [40, 2]])
    np.testing.assert_array_equal(column(log, "val/bits_per_element"), [[20, 4.5], [40, 2.5]])
    loss_plot(parts, tmp_path / "parts.png")
    loss_plot(str(tmp_path / "whole"), tmp_path / "whole.png")
    np.testing.assert_array_equal(pixels(tmp_path / "parts.png"), pixels(tmp_path / "whole.png"))


def test_smoothing():
    values = np.arange(400.0)
    np.testing.assert_allclose(_smooth(values)[:390], values[:390])
    np.testing.assert_array_equal(_smooth(values[:9]), values[:9])
    assert _smooth(np.random.default_rng(0).normal(size=4000)).std() < 0.2


@pytest.mark.parametrize("text", ["", "step,other\n1,2\n", HEADER + "0,1,,,\n"])
def test_a_log_without_losses(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match="expected numbers under train/bits_per_element or val/bits_per_element"):
        loss_plot(tmp_path / "metrics.csv", tmp_path / "loss.png")
