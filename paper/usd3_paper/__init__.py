"""The tables of the paper: the studies that measure them, their results, and our numbers beside the published ones.

`usd3 paper` runs this code. It lies in the folder paper/ of a checkout and is no part of the installed package.
"""

from usd3_paper.results import collect
from usd3_paper.study import Study
from usd3_paper.tables import PaperTable

__all__ = ["PaperTable", "Study", "collect"]
