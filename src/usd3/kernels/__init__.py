"""The hot path: losses with their gradients, and draws, from logits (..., K) without another tensor of that size.

Kernels know tensors only. `usd3.core.fused` turns a noise, a schedule and times into the tensors below and is the only
caller; docs/kernels.md derives the formulas.

Three computations on logits. One row is one element; R = B D rows are B objects of D elements each.

- **loss** (`loss.py`). In: logits (R, K) or (..., K), a `Problem` (x and x_0 of each row, coefficients of each object,
  the noise m), weights (3, B). Out: `weighted_loss` gives the sums (3,) of vlb, ce and l2, and the weighted loss with
  its gradient; `terms` gives vlb, ce and l2 of each element, (3, ...).
- **draw** (`draw.py`). In: logits, a `Leap` (x of each row, weights of the jumps of each object), uniforms (2, R).
  Out: `draw` gives new categories (R,), or, without uniforms, the probability of leaving x, (R,).
- **projection** (`projection.py`). In: a `Projection` (hidden states and the output layer) in the place of logits.
  Out: `projected_loss` gives what `weighted_loss` gives, and forms a bounded number of logits at a time, of rows that
  have a loss (`read_rows.py`) and at a width that suits the GPU (`padding.py`).

A fourth one, **coefficients** (`coefficients.py`), makes the numbers of each object that the first two read. In: times
(B,) and the closed form of a schedule. Out: five rows (5, B). Where there is no Triton, or no closed form, the core
computes them in torch.

Four implementations (`choice.py`):

- "eager" is no part of this package: `usd3.core.terms` and `usd3.core.mixture` are the readable reference.
- "chunked" (`chunked_loss.py`, `chunked_draw.py`) is plain torch, a bounded number of rows at a time. It runs anywhere.
- "cpp" (`cpp_loss.py`, `cpp_loss.cpp`) visits each row once. It runs on CPUs under Linux with a C++ compiler, which
  builds it at its first use. Its draws are the chunked ones.
- "triton" (`triton_loss.py`, `triton_draw.py`) is one kernel for each computation. It runs on NVIDIA GPUs from compute
  capability 7.0 on, and on the CPU, slowly, in Triton's interpreter (TRITON_INTERPRET=1).

"auto" is "triton" on such a GPU where Triton is installed, "cpp" on such a CPU, else "chunked". The projection
(`chunked_projection.py`) is one loop over rows for all; it calls the loss of the chosen implementation.

Tests and benchmarks have the same names: tests/kernels/test_loss.py and benchmarks/loss.py, and so on.
"""

from typing import TYPE_CHECKING

from usd3.kernels.choice import IMPLEMENTATIONS, chosen, cpp_runs
from usd3.kernels.coefficients import (
    COSINE,
    EXPONENTIAL,
    POWER,
    ClosedForm,
    coefficients_at,
    constants,
    drawn_coefficients,
)
from usd3.kernels.draw import Leap, draw
from usd3.kernels.loss import LOST, TO_NOISE, NoiseTables, Problem, flattened, terms, weighted_loss
from usd3.kernels.projection import Projection, projected_loss, rows_read

if TYPE_CHECKING:
    from usd3.kernels.read_rows import RowsRead

__all__ = [
    "COSINE",
    "EXPONENTIAL",
    "IMPLEMENTATIONS",
    "LOST",
    "POWER",
    "TO_NOISE",
    "ClosedForm",
    "Leap",
    "NoiseTables",
    "Problem",
    "Projection",
    "RowsRead",
    "chosen",
    "coefficients_at",
    "constants",
    "cpp_runs",
    "draw",
    "drawn_coefficients",
    "flattened",
    "projected_loss",
    "rows_read",
    "terms",
    "weighted_loss",
]
