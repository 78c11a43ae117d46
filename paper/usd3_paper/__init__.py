"""The tables of the paper: what is run for them, what that gave, and our numbers beside the published ones.

`usd3 paper` uses this on the folder `paper/` of a checkout.
"""

from usd3_paper.results import collect
from usd3_paper.study import Study
from usd3_paper.tables import Table

__all__ = ["Study", "Table", "collect"]
