"""From noise to data: samplers, one file each, and the loop that all of them share.

A sampler is a function `(run, grid) -> step`. It computes the coefficients of the whole grid up front. `step(x, i)`
then asks the network once and draws x_s from x_t, with t, s = grid[i], grid[i + 1]. `exact` is the paper's (Algorithm
2); `euler`, `tau_leaping` and `gillespie` simulate the reverse chain by its rates, for comparison; `first_hitting`
draws one element a call, `CertainFirst` the surest elements first; `Revision` may take back what was drawn;
`Trapezoidal` asks twice a step, for an error of second order. To add a sampler, write one file and enter it in
`SAMPLERS`, or pass the function to `Diffusion.sample`.
"""

from usd3.core.samplers.certain_first import CertainFirst
from usd3.core.samplers.corrector import Corrector, CorrectorMoves, corrector_jumps
from usd3.core.samplers.euler import euler, euler_jumps
from usd3.core.samplers.exact import ask_and_draw, exact, exact_jumps
from usd3.core.samplers.first_hitting import first_hitting
from usd3.core.samplers.gibbs import GibbsCorrector
from usd3.core.samplers.gillespie import gillespie
from usd3.core.samplers.loop import Step, sample
from usd3.core.samplers.names import (
    FOR_ABSORBING_NOISE,
    SAMPLERS,
    base_name,
    sampler_named,
    shown_name,
    with_options,
)
from usd3.core.samplers.revision import Revision, largest_sigma, revision_jumps
from usd3.core.samplers.run import Run, Sampler, StepFunction, likeliest, network_time
from usd3.core.samplers.tau_leaping import tau_leaping, tau_leaping_jumps
from usd3.core.samplers.trapezoidal import Trapezoidal

__all__ = [
    "FOR_ABSORBING_NOISE",
    "SAMPLERS",
    "CertainFirst",
    "Corrector",
    "CorrectorMoves",
    "GibbsCorrector",
    "Revision",
    "Run",
    "Sampler",
    "Step",
    "StepFunction",
    "Trapezoidal",
    "ask_and_draw",
    "base_name",
    "corrector_jumps",
    "euler",
    "euler_jumps",
    "exact",
    "exact_jumps",
    "first_hitting",
    "gillespie",
    "largest_sigma",
    "likeliest",
    "network_time",
    "revision_jumps",
    "sample",
    "sampler_named",
    "shown_name",
    "tau_leaping",
    "tau_leaping_jumps",
    "with_options",
]
