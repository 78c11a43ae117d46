"""Time grids as rows of ticks."""

import pytest

from usd3.pictures.time_grids import draw_time_grids


def test_a_picture_of_grids(tmp_path):
    sizes = []
    for grids in ({2: [1.0, 0.4, 0.0]}, {2: [1.0, 0.4, 0.0], 4: [1.0, 0.9, 0.4, 0.1, 0.0]}):
        draw_time_grids(grids, tmp_path / "grids.png")
        sizes.append(len((tmp_path / "grids.png").read_bytes()))
        assert (tmp_path / "grids.png").read_bytes().startswith(b"\x89PNG")
    assert sizes[1] > sizes[0]
    with pytest.raises(ValueError, match="at least one grid"):
        draw_time_grids({}, tmp_path / "none.png")
