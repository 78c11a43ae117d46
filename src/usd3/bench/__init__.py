"""Time and memory of the loss and of a sampling step beside other ways to compute them, and what methods cost."""

from usd3.bench.floor import bytes_moved, copy_bandwidth, floor_ms
from usd3.bench.machine import machine
from usd3.bench.other import Other, load_other
from usd3.bench.problem import Inputs, Problem, Size
from usd3.bench.rows import Bench, Row
from usd3.bench.runs import Job, measured, run, run_scaling, show, show_machine
from usd3.bench.scaling import fit_slopes, growing, slope
from usd3.bench.tables import as_table, write_csv
from usd3.bench.timing import Budget, Call, Measured, measure, measure_all

__all__ = [
    "Bench",
    "Budget",
    "Call",
    "Inputs",
    "Job",
    "Measured",
    "Other",
    "Problem",
    "Row",
    "Size",
    "as_table",
    "bytes_moved",
    "copy_bandwidth",
    "fit_slopes",
    "floor_ms",
    "growing",
    "load_other",
    "machine",
    "measure",
    "measure_all",
    "measured",
    "run",
    "run_scaling",
    "show",
    "show_machine",
    "slope",
    "write_csv",
]
