"""What drawing costs and what a corrector does, counted: network calls, and elements that corrector moves changed."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from usd3.core.model import Wrapper
from usd3.core.samplers import CorrectorMoves, Run, StepFunction
from usd3.pipeline.pipeline import Pipeline

__all__ = ["CountingCorrector", "CountingPipeline"]


class CountingPipeline(Pipeline):
    """The same model, with a counter of the objects that its network was asked about.

    Steps are not replayed as CUDA graphs, which hide calls from the counter.
    """

    def __init__(self, pipeline: Pipeline):
        self.__dict__.update(pipeline.__dict__)
        self.rows = 0

    @property
    def bare_network(self) -> Any:
        """No network of the package, so that no step is replayed."""
        return None

    def denoiser(self, num: int | None = None) -> Callable[..., Tensor]:
        """The network as the sampler calls it; each call adds its rows to `rows`."""
        return _Counted(super().denoiser(num), self)


class _Counted(Wrapper):
    def __init__(self, model: Callable[..., Any], counter: CountingPipeline):
        super().__init__(model)
        self.counter = counter

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        self.counter.rows += len(x_t)
        return self.model(x_t, t, **masks)


class CountingCorrector(CorrectorMoves):
    """The same corrector, with a counter of the elements that its moves changed.

    An element that two moves change counts twice. The moves add to a counter on their device, and nobody waits for it
    until `changed` is read.
    """

    def __init__(self, corrector: CorrectorMoves):
        self.corrector, self.num_steps, self.last = corrector, corrector.num_steps, corrector.last
        self._changed: Tensor | int = 0

    @property
    def changed(self) -> int:
        """How many elements all moves so far have changed, over all objects."""
        return int(self._changed)

    def moves(self, run: Run, grid: list[float], due: list[int]) -> StepFunction:
        """The corrector's moves, counted."""
        move = self.corrector.moves(run, grid, due)

        def counted(x: Tensor, i: int) -> Tensor:
            moved = move(x, i)
            self._changed = self._changed + (moved != x).sum()
            return moved

        return counted
