"""Tables on the command line: from file to file, holes that are filled, pictures."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from support.pixels import has, pixels
from support.tables import adult_text, mixed_frame, mushroom_text, read_frame, read_text
from usd3.cli.main import main
from usd3.kinds.rendering import Drawn, Request
from usd3.pictures.figures import GIVEN
from usd3.pipeline.pipeline import Pipeline

SMALL = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--training.batch_size", "16"]
SHORT = ["--training.steps", "2", "--training.validate_every", "0", "--training.patience", "0"]
SHORT += ["--training.accelerator", "cpu", "--progress", "false"]
NAMES = ["age", "work", "weight", "school", "years", "sex", "gain", "hours", "income"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two models that learnt nothing: people, from a table without a header, and things."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "people.data").write_text(adult_text())
    rng = np.random.default_rng(0)
    things = pd.DataFrame(
        {
            "id": np.arange(1000, 1200),
            "price": rng.integers(100, 100_000, size=200) / 100,
            "colour": rng.choice(["red", "green", ""], size=200),
            "day": pd.Series(pd.date_range("2020-01-01", periods=200)).dt.strftime("%d/%m/%Y"),
        }
    )
    things.to_csv(folder / "things.csv", index=False, sep=";")
    train = ["train", str(folder / "people.data"), "small", "--data.table.names", json.dumps(NAMES)]
    assert main([*train, *SMALL, *SHORT, "--run", str(folder / "people")]) == 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "column id is left out")
        assert main(["train", str(folder / "things.csv"), *SMALL, *SHORT, "--run", str(folder / "things")]) == 0
    return folder


@pytest.fixture
def work(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return folder


def sample(model, *options):
    return main(["sample", str(model), "--device", "cpu", *options])


def test_new_rows_are_written_in_the_form_of_the_file(work):
    assert sample(work / "people", "--num", "20", "--out", "new.csv") == 0
    lines = Path("new.csv").read_text().splitlines()
    assert len(lines) == 20
    assert all(line.count(", ") == 8 for line in lines)
    assert sample(work / "things", "--num", "20", "--out", "new.csv2") == 1  # nobody knows such files
    assert sample(work / "things", "--num", "20", "--out", "things.csv") == 0
    frame = pd.read_csv("things.csv", sep=";", keep_default_na=False)
    assert list(frame.columns) == ["price", "colour", "day"]
    assert set(frame["colour"]) <= {"red", "green", ""}
    assert pd.to_datetime(frame["day"], format="%d/%m/%Y").between("2020-01-01", "2020-07-18").all()
    assert (frame["price"] * 100).round(6).mod(1).eq(0).all()


def test_a_folder_gets_the_table_a_picture_and_the_tokens(work):
    assert sample(work / "things", "--num", "3", "--out", "all", "--animate", "true") == 0
    assert {file.name for file in Path("all").iterdir()} == {
        "samples.csv",
        "samples.npz",
        "samples.png",
        "denoising.gif",
    }
    assert sample(work / "things", "--num", "3", "--out", "new.parquet") == 0
    assert pd.read_parquet("new.parquet")["day"].dtype.kind == "M"


@pytest.mark.filterwarnings("default:weight in row 3")
def test_empty_cells_are_drawn_and_all_others_stay_letter_by_letter(work, capsys):
    prompt = "income,weight,sex,age\n<=50K,123457.0,,\n,,Female,17\n>50K,99999999,Male,\n"
    Path("holes.csv").write_text(prompt)
    assert sample(work / "people", "--prompt", "holes.csv", "--out", "filled.csv") == 0
    assert "weight in row 3 of holes.csv = 99999999: treated as the nearest that training" in capsys.readouterr().err
    lines = [line.split(", ") for line in Path("filled.csv").read_text().splitlines()]
    assert lines[0] == NAMES  # as the prompt has a header
    cells = [dict(zip(NAMES, line)) for line in lines[1:]]
    assert (cells[0]["income"], cells[0]["weight"]) == ("<=50K", "123457.0")
    assert (cells[1]["sex"], cells[1]["age"]) == ("Female", "17")
    assert (cells[2]["income"], cells[2]["weight"], cells[2]["sex"]) == (">50K", "99999999", "Male")
    assert {row["sex"] for row in cells} <= {"Male", "Female"}
    assert len(cells) == 3


def test_columns_that_are_left_out_are_kept_in_a_prompt(work):
    Path("holes.csv").write_text("id;price;colour;day\n7;;red;\n8;12,5;;01/02/2020\n".replace("12,5", "12.50"))
    assert sample(work / "things", "--prompt", "holes.csv", "--out", "filled.csv") == 0
    frame = pd.read_csv("filled.csv", sep=";", dtype=str, keep_default_na=False)
    assert frame["id"].tolist() == ["7", "8"]
    assert list(frame.columns) == ["id", "price", "colour", "day"]
    assert (frame["colour"][0], frame["price"][1], frame["day"][1]) == ("red", "12.50", "01/02/2020")
    assert sample(work / "things", "--prompt", "holes.csv", "--out", "filled.parquet") == 0
    typed = pd.read_parquet("filled.parquet")
    assert typed["price"][1] == 12.5
    assert typed["day"][1] == pd.Timestamp("2020-02-01")
    assert sample(work / "things", "--prompt", "filled.parquet", "--out", "again.csv") == 0
    again = pd.read_csv("again.csv", sep=";", dtype=str)
    assert (again["price"][1], again["day"][1]) == ("12.5", "01/02/2020")


def test_rows_are_drawn_under_a_condition(work, capsys):
    """Also where it cuts a bin, beside a prompt, and with a category for missing cells."""
    where = "sex=Female,weight=100000..200000,work!="
    assert sample(work / "people", "--num", "60", "--where", where, "--out", "women.data") == 0
    rows = [line.split(", ") for line in Path("women.data").read_text().splitlines()]
    assert len(rows) == 60
    assert {row[5] for row in rows} == {"Female"}
    assert all(100_000 <= int(row[2]) <= 200_000 for row in rows)
    assert "?" not in {row[1] for row in rows}
    Path("holes.csv").write_text("weight,age\n7,\n,50\n")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "weight in row 1")
        assert sample(work / "people", "--prompt", "holes.csv", "--where", where, "--out", "both.csv") == 0
    rows = [line.split(", ") for line in Path("both.csv").read_text().splitlines()[1:]]
    assert rows[0][2] == "7"  # given, whatever the condition says
    assert 100_000 <= int(rows[1][2]) <= 200_000
    assert {row[5] for row in rows} == {"Female"}
    assert sample(work / "people", "--num", "1", "--where", "sex=Femal", "--out", "x.csv") == 1
    assert "sex in where = Femal: expected one of Male, Female (is Female meant?)" in capsys.readouterr().err


def test_a_prompt_without_a_header_has_the_columns_of_the_file(work):
    Path("holes.data").write_text("39, ?, 77516, , 13, Male, 0, 40, ?\n")
    assert sample(work / "people", "--prompt", "holes.data", "--num", "5", "--out", "filled.data") == 0
    lines = [line.split(", ") for line in Path("filled.data").read_text().splitlines()]
    assert len(lines) == 5  # five answers to one prompt
    assert all((line[0], line[2], line[5]) == ("39", "77516", "Male") for line in lines)
    Path("short.csv").write_text("39,77516\n")
    assert sample(work / "people", "--prompt", "short.csv") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sex,hight\nMale,3\n", "column of bad.csv = hight: expected one of age, work, weight"),
        ("sex,age\nMal,30\n", "sex in row 1 of bad.csv = Mal: expected one of Male, Female (is Male meant?)"),
        ("sex,age\nMale,3\nMale\n", "line 3 of bad.csv = 1 cell: expected 2, as the first line has"),
        ("39,77516\n", "columns of bad.csv = 2: expected 9"),
        ("sex,age\n", "prompt = 0 rows: expected 1.."),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused_in_one_line(text, message, work, capsys):
    Path("bad.csv").write_text(text)
    assert sample(work / "people", "--prompt", "bad.csv") == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert message in line


def test_held_out_rows_are_prompts_by_the_numbers_of_columns(work):
    options = ("--prompt", "test", "--given", "0:5", "--num", "3")
    assert sample(work / "people", *options, "--out", "x.npz") == 0
    stored = np.load("x.npz")
    assert stored["given"].tolist() == [True] * 5 + [False] * 4
    assert sample(work / "people", "--prompt", "test", "--num", "3", "--out", "y.csv") == 1  # which columns?


def test_a_table_is_evaluated_beside_reference_rows(work, capsys):
    options = ("--runs", "1", "--limit", "25", "--bound_samples", "2", "--out", "results.json", "--device", "cpu")
    assert main(["evaluate", str(work / "people"), *options]) == 0
    printed = capsys.readouterr().out
    for words in ("Shape ↑", "training rows", "columns permuted", "Gaussian copula", "of all 9 elements"):
        assert words in printed
    assert {file.name for file in Path("results").iterdir()} == {
        "marginals.png",
        "trends.png",
        "pairs.png",
        "columns.csv",
        "pairs.csv",
    }
    results = json.loads(Path("results.json").read_text())
    assert results["compared_with"] == {"held_out_rows": 25, "training_rows": 270, "training_rows_compared": 270}
    assert results["title"] == "25 rows in 100 steps, seed 0, against 25 held-out rows"
    Path("again").mkdir()
    Path("again/marginals.png").write_text("mine")
    options = ("--runs", "1", "--limit", "25", "--bound_samples", "0", "--baselines", "false", "--out", "again.json")
    assert main(["evaluate", str(work / "people"), *options]) == 0
    assert Path("again/marginals.png").read_text() == "mine"
    assert Path("again-2/marginals.png").stat().st_size > 1000
    capsys.readouterr()
    assert main(["evaluate", str(work / "people"), "--images.num", "5"]) == 1
    assert "images.num = 5: expected no such option, as the data are no images" in capsys.readouterr().err


def test_methods_are_compared_on_a_table(work, capsys):
    fast = ["--evaluation.runs", "1", "--evaluation.bound_samples", "0", "--evaluation.limit", "20"]
    command = ["compare", "--methods", f"people:{work / 'people'}", *fast, "--device", "cpu", "--out", "compared"]
    assert main(command) == 0
    head = next(line for line in capsys.readouterr().out.splitlines() if "Shape" in line)
    titles = ("Shape", "Trend", "told apart", "nearer to training", "copies of training", "bits/element")
    assert sorted(titles, key=head.index) == list(titles)
    assert {file.name for file in Path("compared/people").iterdir()} == {
        "comparison",
        "comparison.json",
        "comparison.npz",
    }
    assert Path("compared/people/comparison/trends.png").is_file()
    assert main(command) == 0
    assert "1 of 1 are measured already" in capsys.readouterr().err


def test_models_of_a_table_load_and_draw_the_same(work):
    pipeline = Pipeline.from_pretrained(work / "things")
    assert pipeline.kind.describe() == "rows of 3 columns"
    tokens = pipeline.sample(50, seed=1)
    assert pipeline.kind.support[torch.arange(3), tokens].all()
    assert pipeline.kind.objects(tokens).equals(Pipeline.from_pretrained(work / "things").kind.objects(tokens))


def test_a_model_of_a_table_is_exported(work, capsys):
    """Categories may look like paths."""
    Path("urls.csv").write_text("path,code\n" + "/home,200\n/about,404\n" * 20)
    assert main(["train", "urls.csv", *SMALL, *SHORT, "--run", "urls"]) == 0
    assert main(["export", "urls", "--out", "shared"]) == 0
    assert "rows of 2 columns" in Path("shared/README.md").read_text()
    assert "usd3 sample shared --num 1000 --out new.csv" in Path("shared/README.md").read_text()
    assert sample("shared", "--num", "4", "--out", "new.csv") == 0


# ---- pictures -----------------------------------------------------------------------------------------------------


def test_pictures_mark_what_was_given(tmp_path):
    kind = read_text(tmp_path, mushroom_text(), "m.data").kind
    tokens = torch.zeros(30, 5, dtype=torch.long)
    given = torch.zeros(30, 5, dtype=torch.bool)
    given[2, 1] = True
    renderer = kind.renderer(Request(suffix=".png"))
    renderer.picture(Drawn(tokens, given=given, prompt=tokens), tmp_path / "given.png")
    renderer.picture(Drawn(tokens), tmp_path / "free.png")
    assert has(pixels(tmp_path / "given.png"), GIVEN)
    assert not has(pixels(tmp_path / "free.png"), GIVEN)


def test_values_are_drawn_under_the_condition_of_the_command(tmp_path):
    kind = read_frame(mixed_frame()).kind
    rows, given = torch.zeros(50, 14, dtype=torch.long), torch.zeros(50, 14, dtype=torch.bool)
    place, where = kind.column("real"), "real=0..0.5"
    rows[:, place] = int(kind.weights(where)[place].argmax())
    kind.renderer(Request(suffix=".csv")).write(Drawn(rows, seed=3, where=where), tmp_path / "new.csv")
    assert pd.read_csv(tmp_path / "new.csv")["real"].between(0, 0.5).all()
    rows[:2, place], given[:2, place] = 0, True  # a prompt may give what the condition does not allow
    drawn = Drawn(rows, given=given, prompt=rows, seed=3, where=where)
    kind.renderer(Request(suffix=".csv")).write(drawn, tmp_path / "given.csv")
    column = pd.read_csv(tmp_path / "given.csv")["real"]
    assert (column[:2] < 0).all()
    assert column[2:].between(0, 0.5).all()


def filled(kind, prompt, out):
    """Write the rows of a prompt, with the first category in each hole."""
    renderer = kind.renderer(Request(suffix=out.suffix))
    rows, given = renderer.prompt(prompt)
    renderer.write(Drawn(rows.tokens, given=given, prompt=rows.tokens), out)


def test_a_model_with_integer_names_of_columns_fills_a_parquet_file(tmp_path):
    frame = pd.DataFrame({0: ["a", "b"] * 20, 1: np.arange(40), 2: [1.5, 2.5] * 20})
    with pytest.warns(UserWarning, match="column 1 is left out"):
        kind = read_frame(frame).kind
    frame.head(3).set_axis(["0", "1", "2"], axis=1).to_parquet(tmp_path / "holes.parquet")
    filled(kind, tmp_path / "holes.parquet", tmp_path / "filled.parquet")
    back = pd.read_parquet(tmp_path / "filled.parquet")
    assert list(back.columns) == ["0", "1", "2"]
    assert back.to_numpy().tolist() == frame.head(3).to_numpy().tolist()


def test_missing_cells_of_a_column_that_is_left_out_stay_empty(tmp_path):
    frame = pd.DataFrame({"id": np.arange(40), "x": ["a", "b"] * 20})
    with pytest.warns(UserWarning, match="column id is left out"):
        kind = read_frame(frame).kind
    prompt = pd.DataFrame({"id": pd.array([2**60 + 1, None], dtype="Int64"), "x": ["a", None]})
    prompt.to_parquet(tmp_path / "holes.parquet")
    filled(kind, tmp_path / "holes.parquet", tmp_path / "filled.csv")
    assert (tmp_path / "filled.csv").read_text() == f"id,x\n{2**60 + 1},a\n,a\n"


def test_a_letter_that_the_encoding_of_training_lacks_is_written_in_utf_8(tmp_path):
    text = "name,size\n" + "".join(f"Ren\xe9 {i},{i % 3}\n" for i in range(40))
    with pytest.warns(UserWarning, match="column name is left out"):
        kind = read_text(tmp_path, text.encode("cp1252"), encoding="cp1252").kind
    (tmp_path / "holes.csv").write_text("name,size\n\u0141ukasz,\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="filled.csv is written in UTF-8, not in the cp1252 .* has no '\u0141'"):
        filled(kind, tmp_path / "holes.csv", tmp_path / "filled.csv")
    assert (tmp_path / "filled.csv").read_text(encoding="utf-8") == "name,size\n\u0141ukasz,0\n"


def test_an_empty_line_of_a_prompt_of_one_column_is_a_hole(tmp_path):
    kind = read_text(tmp_path, "x\n" + "a\nb\n\n" * 20).kind
    (tmp_path / "holes.csv").write_text("x\nb\n\n\nb\n")
    filled(kind, tmp_path / "holes.csv", tmp_path / "filled.csv")
    assert (tmp_path / "filled.csv").read_text() == "x\nb\na\na\nb\n"
