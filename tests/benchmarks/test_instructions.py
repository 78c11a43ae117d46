"""What the kernels compile to for a GPU that is not here."""

import csv
import importlib
import os
import subprocess
import sys

import pytest

from support.places import ROOT

pytest.importorskip("triton")

LISTING = """
        /*0000*/                   LDG.E R1, desc[UR4][R2.64] ;
.L_x_0:
        /*0010*/                   MUFU.EX2 R1, R1 ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/                   FADD R1, R1, R1 ;
        /*0040*/                   FADD R1, R1, R1 ;
        /*0050*/                   BRA `(.L_x_2) ;
.L_x_1:
        /*0060*/                   FMUL R1, R1, R1 ;
.L_x_2:
        /*0070*/               @P1 BRA `(.L_x_0) ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
"""
COMPILE = """
import sys
sys.path.insert(0, "benchmarks")
from instructions import coefficients_binary, draw_code, loss_code
for noise in ("uniform", "absorbing", "table"):
    for K, dtype in {cases}:
        loss, draw = loss_code(K, noise, dtype, STEP=True, L2=True), draw_code(K, noise, dtype)
        print(noise, K, dtype, loss.spilled, draw.spilled)
for family in {families}:
    for time in ((True, False, True), (True, True, False), (False, False, True), (False, False, False)):
        assert coefficients_binary(family, *time)
"""
SPECIALISED = """
from usd3.kernels.triton_coefficients import _coefficients_kernel
fixed = ("is_constexpr", "do_not_specialize", "do_not_specialize_on_alignment")
print(*(p.name for p in _coefficients_kernel.params if not any(getattr(p, name) for name in fixed)))
"""


@pytest.fixture
def instructions(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("instructions")
    sys.modules.pop("instructions", None)
    sys.modules.pop("shared", None)


def python(*arguments):
    """What a new process prints, in which kernels are compiled and not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_shortest_way_through_a_loop_is_counted(instructions):
    code = instructions.Code(instructions._instructions(LISTING), 0, 0)
    assert code.loops == [(1, 7)]
    assert code.shortest(1, 7) == ["MUFU", "BRA", "FMUL", "BRA"]


def test_a_pass_has_the_special_functions_that_the_page_names_and_nothing_spills(tmp_path):
    file = tmp_path / "rows.csv"
    words = ["--sizes", "8192", "--types", "fp32", "--noises", "uniform", "table", "--csv", str(file)]
    python("benchmarks/instructions.py", *words)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    # the sum, again where a logit was far above the first, the cells with a logarithm, and the gradient; cells of a
    # table of noise are divided by m, their gradient is not
    assert [float(row["special"]) for row in rows] == [1, 1, 3, 2, 1, 1, 4, 2]
    assert {row["spilled"] for row in rows} == {"0"}
    code = "import sys; sys.path.insert(0, 'benchmarks'); from instructions import loss_code\n"
    code += "print(*(loss_code(8192, noise, 'fp32', STEP=True, L2=True).spilled for noise in ('uniform', 'table')))"
    assert python("-c", code).split() == ["0", "0"]


@pytest.mark.parametrize(
    "cases",
    [
        [(129, "fp32")],
        pytest.param([(K, t) for K in (129, 50257) for t in ("fp32", "bf16", "fp16", "fp64")], marks=pytest.mark.slow),
    ],
    ids=["one", "all"],
)
def test_every_noise_and_schedule_compiles_for_a_gpu(cases):
    """The coefficients as rates and steps, of drawn and given times."""
    families = range(1 if len(cases) == 1 else 3)
    lines = python("-c", COMPILE.format(cases=cases, families=families)).splitlines()
    assert len(lines) == 3 * len(cases)


def test_the_coefficients_compile_once_for_any_batch_and_any_place_of_its_times():
    """Only what the kernel's own module allocates may be taken as aligned: times may begin inside another tensor."""
    assert python("-c", SPECIALISED).split() == ["numbers", "out"]
