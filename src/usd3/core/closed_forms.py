"""The schedules of the package as the kernel of the coefficients knows them."""

import math
from collections.abc import Callable
from typing import Any

from usd3.core.fused import COSINE, EXPONENTIAL, POWER, ClosedForm
from usd3.core.schedules import Constant, Cosine, Exponential, Geometric, Linear, LogLinear, Power, Schedule

__all__ = ["closed_form"]

_FORMS: dict[type[Schedule], Callable[[Any], ClosedForm]] = {
    Cosine: lambda schedule: ClosedForm(COSINE, schedule._c, schedule._d),
    Linear: lambda schedule: ClosedForm(POWER, schedule.eps, 1.0),
    LogLinear: lambda schedule: ClosedForm(POWER, schedule.eps, 1.0),
    Power: lambda schedule: ClosedForm(POWER, 0.0, schedule.power),
    Constant: lambda schedule: ClosedForm(EXPONENTIAL, schedule._beta),
    Exponential: lambda schedule: ClosedForm(EXPONENTIAL, schedule.a, math.log(schedule.b)),
    Geometric: lambda schedule: ClosedForm(
        EXPONENTIAL, schedule.a, math.log(schedule.b), schedule.lo if schedule.offset else 0.0
    ),
}


def closed_form(schedule: Schedule) -> ClosedForm | None:
    """The closed form of a packaged schedule; None: one of your own, also one that inherits from a packaged one."""
    make = _FORMS.get(type(schedule))
    return None if make is None else make(schedule)
