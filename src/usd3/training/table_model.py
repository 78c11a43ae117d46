"""Tables in the manner of pandas and scikit-learn: a model that is fitted to a DataFrame and gives DataFrames."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require, require_type
from usd3._internal.files import require_free
from usd3._internal.random import seed_of
from usd3.kinds.table.frames import is_frame, require_pandas
from usd3.kinds.table.kind import Table
from usd3.pipeline.filling import holes_without_value
from usd3.pipeline.pipeline import Pipeline
from usd3.training.any_data import fit

__all__ = ["TableModel"]


class TableModel:
    """A generative model of the rows of a table.

    Args:
        pipeline: a trained model of a table; None: `fit` trains one.

    Example:
        >>> model = usd3.TableModel().fit(table, minutes=2)
        >>> model.sample(1000, where={"sex": "Female", "age": (30, 40)})
        >>> model.impute(table_with_gaps)
    """

    def __init__(self, pipeline: Pipeline | None = None):
        if pipeline is not None:
            kind = getattr(pipeline, "kind", pipeline)
            require_type(isinstance(kind, Table), "pipeline", kind, "a model of a table; fit trains one on data")
        self._pipeline = pipeline

    def __repr__(self) -> str:
        return "TableModel()" if self._pipeline is None else f"TableModel({self._pipeline!r})"

    # ---- making one -----------------------------------------------------------------------------------------------

    def fit(
        self,
        table: Any,
        /,
        *recipes: str,
        minutes: float | None = None,
        columns: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Train on a DataFrame, or on the file at a path; returns the model.

        Args:
            table: the rows. A tenth of them is held out, to end training in time.
            recipes: as in `usd3.fit`.
            minutes: train for at most so many minutes.
            columns: types of columns by name where the detected ones are not meant: "category", "ordered", "number",
                "date" or "ignore".
            options: further arguments of `usd3.fit`.
        """
        if columns is not None:
            data = dict(options.pop("data", {}))
            data["table"] = {**data.get("table", {}), "columns": dict(columns)}
            options["data"] = data
        self._pipeline = fit(table, *recipes, minutes=minutes, kind="table", **options)
        return self

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | None = None) -> Self:
        """The model in a folder that `save` or `usd3 train` wrote."""
        return cls(Pipeline.from_pretrained(Path(folder), device=device))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model into a new folder, which `load` and `usd3 sample` read."""
        require_free(Path(folder), "folder")
        self.pipeline.save_pretrained(Path(folder))

    @property
    def pipeline(self) -> Pipeline:
        """The model of the tokens behind the table."""
        if self._pipeline is None:
            raise RuntimeError("the model is not trained yet: call fit, or TableModel.load")
        return self._pipeline

    @property
    def kind(self) -> Table:
        """The columns of the table."""
        kind = self.pipeline.kind
        assert isinstance(kind, Table)
        return kind

    # ---- using it -------------------------------------------------------------------------------------------------

    def sample(
        self,
        num: int = 1,
        where: Mapping[str, Any] | str | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """New rows, a DataFrame with the columns and dtypes of the data.

        Args:
            num: number of rows.
            where: draw from p(row | condition): {"sex": "Female", "age": (30, 40)}. A tuple is a range with both ends
                included (None: open), a list is a choice of values, None is a missing value. Or a text,
                "sex=Female,age=30..40,education=Bachelors|Masters".
            seed: seed of the draws.
            temperature: below 1, rows are closer to what the model finds likely.
            batch_size: rows at once; None: chosen by memory.
            options: further arguments of `Pipeline.sample`, such as `guidance_scale`, `sampler`, `top_p`.
        """
        how = {"where": where, "temperature": temperature, "batch_size": batch_size}
        return self.pipeline.generate(num, seed, **how, **options)

    def impute(self, table: Any, how: Literal["draw", "mode"] = "draw", n: int | None = None, seed: int = 0) -> Any:
        """The table with its missing cells filled; all other cells stay. Columns that it lacks are added.

        Args:
            table: a DataFrame.
            how: "draw": all missing cells of a row are drawn together from p(missing | known). "mode": each is the
                likeliest value given the known cells; of numbers and dates, the median.
            n: return a list of so many filled tables, drawn independently of each other (multiple imputation).
            seed: seed of the draws.
        """
        require(how in ("draw", "mode"), "how", how, "draw or mode")
        tokens, known = self._tokens(table)
        if how == "mode":
            require(n is None, "n", n, "None for the mode, which is always the same")
            return self.kind.filled(table, self._likeliest(tokens, known), seed, middle=True)
        count = 1 if n is None else as_count(n, "n", 1)
        filled = [self._drawn(table, tokens, known, seed_of(seed, i)) for i in range(count)]
        return filled[0] if n is None else filled

    def predict_proba(self, table: Any, column: str | int) -> Any:
        """p(column | the other columns) of each row, a DataFrame with a column for each value.

        A missing cell is the value "missing" if the data have such; otherwise it counts as unknown. The cells of
        `column` itself, if there are any, are not read.

        Args:
            table: a DataFrame.
            column: the name of the column to predict.
        """
        pd, place = require_pandas(), self.kind.column(column)
        probs = self._predicted(table, place)
        labels = self.kind.schema[place].value_labels
        return pd.DataFrame(probs[:, : len(labels)].numpy(), index=table.index, columns=labels)

    def predict(self, table: Any, column: str | int) -> Any:
        """The likeliest value of a column given the others, a Series; of numbers and dates, the median."""
        place = self.kind.column(column)
        probs = self._predicted(table, place)
        tokens = torch.zeros(len(table), len(self.kind.schema), dtype=torch.long)
        tokens[:, place] = self._middle(probs, place)
        return self.kind.objects(tokens, middle=True).iloc[:, place].set_axis(table.index)

    def log_prob(self, table: Any, num_samples: int = 32, repeats: int = 8, seed: int = 0) -> Any:
        """A lower bound on log p of each row in nats, and its standard error; a DataFrame with these two columns.

        The probability is that of the row's categories, and of the bins of its numbers and dates.

        Args:
            table: a DataFrame of complete rows.
            num_samples: times at which the bound is estimated, in each repeat.
            repeats: number of independent estimates, from whose spread the error is computed.
            seed: seed of the draws.
        """
        pd, repeats = require_pandas(), as_count(repeats, "repeats", 2)
        tokens, known = self._tokens(table, keep_missing=True)
        missing = [name for name, complete in zip(self.kind.names, known.all(0).tolist()) if not complete]
        require(not missing, "table", f"missing cells in {', '.join(missing)}", "complete rows; impute fills them")
        nats = torch.stack(
            [self.pipeline.bound(tokens, num_samples=num_samples, seed=seed_of(seed, i)) for i in range(repeats)]
        ).double()
        values = {"log_prob": -nats.mean(0).numpy(), "error": (nats.std(0) / math.sqrt(repeats)).numpy()}
        return pd.DataFrame(values, index=table.index)

    # ---- tokens ---------------------------------------------------------------------------------------------------

    def _tokens(self, table: Any, keep_missing: bool = False) -> tuple[Tensor, Tensor]:
        """The tokens (N, D) of a table that has rows, and which cells are known, (N, D)."""
        tokens, known = self.kind.tokens(table, keep_missing)
        require(len(tokens) > 0, "table", "no rows", "at least one row")
        return tokens, known

    def _drawn(self, table: Any, tokens: Tensor, known: Tensor, seed: int) -> Any:
        x = self.pipeline.fill(tokens, known, seed)
        return self.kind.filled(table, x, seed)

    def _likeliest(self, tokens: Tensor, known: Tensor) -> Tensor:
        """Tokens (N, D) with the likeliest category, or the median, in the place of each unknown one."""
        empty, assumed = holes_without_value(self.pipeline, tokens, known)
        result = tokens.clone()
        for place in (~known).any(0).nonzero().squeeze(1).tolist():
            rows = (~known[:, place]).nonzero().squeeze(1)
            context = (known | empty)[rows]
            context[:, place] = False
            probs = self.pipeline.predict(assumed[rows], context, element=place) * self.kind.filling[place]
            result[rows, place] = self._middle(probs, place)
        return result

    def _middle(self, probs: Tensor, place: int) -> Tensor:
        """The likeliest category of a column, or the median if it is ordered: (N,) from (N, K)."""
        upto = (probs / probs.sum(-1, keepdim=True).clamp(min=1e-30)).cumsum(-1)
        ordered = self.kind.schema[place].is_ordered
        return (upto < 0.5).sum(-1).clamp(max=probs.shape[-1] - 1) if ordered else probs.argmax(-1)

    def _predicted(self, table: Any, place: int) -> Tensor:
        """p(column | the others), (N, K), 0 for a missing cell."""
        name = self.kind.names[place]
        require_type(is_frame(table), "table", table, "a DataFrame of pandas")
        others = table.drop(columns=[label for label in table.columns if str(label) == name])
        tokens, known = self._tokens(others, keep_missing=True)
        probs: Tensor = self.pipeline.predict(tokens, known, element=place) * self.kind.filling[place]
        return probs / probs.sum(-1, keepdim=True).clamp(min=1e-30)
