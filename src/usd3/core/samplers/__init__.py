"""From noise to data: samplers, one file each, and the loop that all of them share.

A sampler is a function `(run, grid) -> step`. It computes the coefficients of the whole grid up front. `step(x, i)`
then asks the network once and draws x_s from x_t, with t, s = grid[i], grid[i + 1]. `exact` is the paper's (Algorithm
2); `euler`, `tau_leaping` and `gillespie` simulate the reverse chain by its rates, for comparison; `first_hitting`
draws one element a call. To add a sampler,
write one file and enter it in `SAMPLERS`, or pass the function to `Diffusion.sample`.
"""

from usd3.core.samplers.corrector import Corrector, correction, corrector_jumps
from usd3.core.samplers.euler import euler, euler_jumps
from usd3.core.samplers.exact import ask_and_draw, exact, exact_jumps
from usd3.core.samplers.first_hitting import first_hitting
from usd3.core.samplers.gillespie import gillespie
from usd3.core.samplers.loop import FOR_ABSORBING_NOISE, SAMPLERS, Step, sample
from usd3.core.samplers.run import Run, Sampler, StepFunction, likeliest, network_time
from usd3.core.samplers.tau_leaping import tau_leaping, tau_leaping_jumps

__all__ = [
    "FOR_ABSORBING_NOISE",
    "SAMPLERS",
    "Corrector",
    "Run",
    "Sampler",
    "Step",
    "StepFunction",
    "ask_and_draw",
    "correction",
    "corrector_jumps",
    "euler",
    "euler_jumps",
    "exact",
    "exact_jumps",
    "first_hitting",
    "gillespie",
    "likeliest",
    "network_time",
    "sample",
    "tau_leaping",
    "tau_leaping_jumps",
]
