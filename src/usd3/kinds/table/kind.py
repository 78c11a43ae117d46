"""Tables as a kind of data: rows of named columns, from CSV, TSV and Parquet files and from DataFrames.

Readers, metrics and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.fields import from_mapping
from usd3._internal.messages import suggestion
from usd3.kinds.base import Kind
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Request
from usd3.kinds.table.columns import Bools, Cells, Column, Limits, Raw, column_from
from usd3.kinds.table.conditions import Condition, conditions_of
from usd3.kinds.table.form import ENDINGS, TableForm
from usd3.kinds.table.frames import is_frame, require_pandas
from usd3.metrics.summary import Metric

if TYPE_CHECKING:
    from usd3.kinds.table.judge import TableJudge
    from usd3.kinds.table.page import TablePage
    from usd3.kinds.table.reading import TableDataset
    from usd3.kinds.table.rendering import TableRenderer

__all__ = ["Table"]

Where = Mapping[str, Any] | str

_MOST_LISTED = 20  # columns of a type


@dataclass(frozen=True)
class Table(Kind):
    """Rows of a table. Each column has its own categories 0, 1, ...; `num_classes` is the largest number of them.

    Args:
        schema: the columns.
        form: how the table is laid out in a file.
    """

    schema: tuple[Column, ...] = ()
    form: TableForm = TableForm()  # noqa: RUF009  # frozen

    name: ClassVar[str] = "table"
    plural: ClassVar[str] = "rows"
    sources: ClassVar[tuple[str, ...]] = ("table",)
    files: ClassVar[tuple[str, ...]] = ENDINGS
    suffixes: ClassVar[tuple[str, ...]] = (".npz", *ENDINGS, ".png", ".gif")
    draws_all_prompts: ClassVar[bool] = True
    draws_one_by_one: ClassVar[bool] = True
    is_sequence: ClassVar[bool] = False
    is_judged: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Metric]] = {
        "shape": Metric("Shape", "higher"),
        "trend": Metric("Trend", "higher"),
        "told_apart": Metric("told apart (AUC)"),
        "nearer_to_training": Metric("nearer to training", None),
        "copies": Metric("copies of training", None),
    }
    main_metrics: ClassVar[tuple[str, ...]] = ("trend", "shape")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.form, dict):  # from JSON
            object.__setattr__(self, "form", from_mapping(TableForm, self.form, "form"))
        object.__setattr__(self, "schema", tuple(column_from(column) for column in self.schema))
        fits = self.shape == (len(self.schema),) and self.num_classes == _num_classes(self.schema)
        expected = f"{self.shape} columns of at most {self.num_classes} categories"
        require(fits, "schema", f"{len(self.schema)} columns", expected)

    @classmethod
    def of(cls, schema: Sequence[Column], form: TableForm) -> Self:
        """The kind of tables with these columns."""
        return cls(_num_classes(schema), (len(schema),), tuple(schema), form)

    def describe(self) -> str:
        """Such as "rows of 15 columns"."""
        return f"rows of {len(self.schema)} {'column' if len(self.schema) == 1 else 'columns'}"

    def details(self) -> list[str]:
        """The columns by type, such as "ordered: age (73), hours (94)", with the number of categories or bins."""
        types = dict.fromkeys(column.type for column in self.schema)
        names = {type: [f"{one.name} ({one.size})" for one in self.schema if one.type == type] for type in types}
        return [f"{type}: {_listed(columns)}" for type, columns in names.items()]

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error for another kind, and for a table whose columns or categories are not those of this one."""
        super().require_same(other, name)
        columns = [column_from(column) for column in other["schema"]]
        seen, expected = [column.name for column in columns], self.names
        require(seen == expected, f"columns of {name}", ", ".join(seen), ", ".join(expected))
        for theirs, ours in zip(columns, self.schema):
            same = "the same categories and bins as in training: the file of training, or rows to fill as a prompt"
            seen_column = f"a {theirs.type} of {theirs.size} categories"
            require(theirs == ours, f"column {ours.name} of {name}", seen_column, same)

    # ---- columns ------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.schema]

    def column(self, name: Any) -> int:
        """The index of the column of this name, which may be a number where the DataFrame has numbers as names."""
        names, text = self.names, str(name)
        require(text in names, "column", name, f"one of {', '.join(names)}{suggestion(text, names)}")
        return names.index(text)

    @cached_property
    def _support(self) -> Tensor:
        sizes = torch.tensor([column.size for column in self.schema])
        return torch.arange(self.num_classes) < sizes[:, None]

    @property
    def support(self) -> Tensor:
        """(D, K) True for the first categories of each column, as many as it has."""
        return self._support

    @property
    def filling(self) -> Tensor:
        """(D, K) float64 weights as in `weights`, with which holes are filled: with any value, not with none."""
        weights = self.support.double()
        for i, column in enumerate(self.schema):
            if column.has_missing and column.num_values:
                weights[i, column.num_values] = 0.0
        return weights

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The dtype of tokens in memory and in files."""
        return np.dtype(np.uint8 if self.num_classes <= 256 else np.int32)

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, data: DataConfig) -> "TableDataset":
        """The rows of a file, a random part of which is held out."""
        from usd3.kinds.table.reading import read_table  # the reader makes objects of this class

        return read_table(cls, data)

    @classmethod
    def claims_objects(cls, objects: Any) -> bool:
        """Whether the objects are a DataFrame of pandas."""
        return is_frame(objects)

    @classmethod
    def from_objects(cls, objects: Any, data: DataConfig) -> "TableDataset":
        """The rows of a DataFrame, a random part of which is held out."""
        from usd3.kinds.table.reading import read_frame

        require_type(is_frame(objects), "data", objects, "a DataFrame of pandas, or the path of a file")
        return read_frame(cls, objects, data)

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """How the held-out rows were chosen."""
        if data.table.test_path is not None:
            return "the rows of another file"
        return f"{data.test_fraction:g} held out of the rows, seed {data.seed}"

    # ---- tokens and DataFrames ----------------------------------------------------------------------------------

    def objects(
        self,
        tokens: Tensor,
        seed: int = 0,
        where: Where | None = None,
        middle: bool = False,
        given: Tensor | None = None,
    ) -> Any:
        """Tokens (N, D) as a DataFrame with the columns and dtypes of the data.

        Args:
            tokens: the rows.
            seed: of the draws, where a category stands for several values.
            where: the condition that the rows were drawn under; values are drawn within it.
            middle: nothing is drawn: a bin stands for its median, rare values for the most frequent of them.
            given: (D,) or (N, D) cells that were given; the condition does not hold for them. None: none was.
        """
        pd = require_pandas()
        drawn = zip(self.schema, self._decoded(tokens, None if middle else seed, where, given))
        frame = pd.DataFrame({column.name: column.series(*cells) for column, cells in drawn})
        return frame.set_axis([int(name) for name in frame], axis=1) if self.form.has_integer_names else frame

    def texts(
        self, tokens: Tensor, seed: int = 0, where: Where | None = None, given: Tensor | None = None
    ) -> dict[str, NDArray[Any]]:
        """Tokens (N, D) as the texts of a file, the cells (N,) of each column; the same values as in `objects`."""
        drawn = zip(self.schema, self._decoded(tokens, seed, where, given))
        return {column.name: column.cells(*cells) for column, cells in drawn}

    def _decoded(
        self, tokens: Tensor, seed: int | None, where: Where | None, given: Tensor | None
    ) -> list[tuple[Raw, Bools]]:
        """The raw numbers of each column, and where its cells have values; without a seed those in the middle."""
        shape = tuple(tokens.shape)
        require(tokens.dim() == 2 and shape[1:] == self.shape, "tokens.shape", shape, f"(N, {len(self.schema)})")
        rows, limits = tokens.cpu().numpy().astype(np.int64), self._limits(where)
        valid = bool(((rows >= 0) & (rows < [column.size for column in self.schema])).all())
        require(valid, "tokens", "a category that its column has not", "categories within the support of each column")
        free = None if given is None else ~given.expand(shape).cpu().numpy()
        found = []
        for i, column in enumerate(self.schema):
            rng = None if seed is None else np.random.default_rng((seed, i))
            limit = limits.get(column.name)
            is_free = None if limit is None or free is None else free[:, i]
            found.append(column.decode(rows[:, i], rng, limit, is_free))
        return found

    def tokens(self, objects: Any, keep_missing: bool = False, name: str = "table") -> tuple[Tensor, Tensor]:
        """The tokens (N, D) of a DataFrame, and a mask (N, D) that is False where there is a hole.

        Missing cells and columns that the DataFrame does not have are holes. A category that training never had is
        refused; a number outside of the range of the data belongs to the outermost bin, with a warning.

        Args:
            objects: the DataFrame, of texts or of any dtypes.
            keep_missing: a missing cell of a column that has missing cells in the data is their category, no hole.
            name: what the DataFrame is called in messages.
        """
        require_type(is_frame(objects), name, objects, "a DataFrame of pandas")
        found = {str(label): label for label in objects.columns}
        for label in found:
            known = {*self.names, *self.form.names}
            hint = suggestion(label, self.names)
            require(label in known, f"column of {name}", label, f"one of {', '.join(self.names)}{hint}")
        tokens = np.zeros((len(objects), len(self.schema)), dtype=np.int64)
        given = np.zeros(tokens.shape, dtype=bool)
        for i, column in enumerate(self.schema):
            if column.name in found:
                cells = self._cells(objects[found[column.name]], name)
                tokens[:, i], given[:, i] = column.encode(cells, keep_missing)
        return torch.from_numpy(tokens), torch.from_numpy(given)

    def _cells(self, series: Any, name: str) -> Cells:
        from usd3.kinds.table.dtypes import normalised

        return Cells(normalised(series)[1].reset_index(drop=True), self.form.missing, name)

    def typed(self, frame: Any) -> Any:
        """Rows of the data, as they come from a file, as a DataFrame with the columns and dtypes of `objects`."""
        pd = require_pandas()
        cells = {column.name: column.raw_of_data(self._cells(frame[column.name], "the data")) for column in self.schema}
        return pd.DataFrame({column.name: column.series(*cells[column.name]) for column in self.schema})

    def filled(
        self, frame: Any, tokens: Tensor, seed: int = 0, where: Where | None = None, middle: bool = False
    ) -> Any:
        """A DataFrame with its holes filled from tokens (N, D): known cells stay, and columns it lacks are added.

        The columns are in the order of the data; those that the model left out are copied. Further arguments are those
        of `objects`.
        """
        drawn, found = self.objects(tokens, seed, where, middle), {str(label): label for label in frame.columns}
        for label, column in zip(drawn.columns, self.schema):
            if column.name in found:
                series = frame[found[column.name]].reset_index(drop=True)
                _, known = column.raw_of_data(self._cells(series, "table"))
                drawn[label] = _combined(series, drawn[label], known)
        drawn = drawn.set_axis(frame.index, axis=0)
        for place, name in enumerate(name for name in self.form.names if name in {*self.names, *found}):
            if name not in self.names:
                drawn.insert(place, found[name], frame[found[name]])
        return drawn

    # ---- conditions ---------------------------------------------------------------------------------------------

    def weights(self, where: Where) -> Tensor:
        """(D, K) float64 the share of each category that a condition allows: 1 or 0, or between where it cuts a bin.

        Args:
            where: "sex=Female,age=30..40", or a mapping {"sex": "Female", "age": (30, 40)}; see `conditions_of`.
        """
        weights = self.support.double()
        for name, conditions in self._conditions(where).items():
            i = self.column(name)
            weights[i] = 0.0
            weights[i, : self.schema[i].size] = torch.from_numpy(self.schema[i].weights(conditions))
        return weights

    def _conditions(self, where: Where) -> dict[str, list[Condition]]:
        """The conditions on each column."""
        found: dict[str, list[Condition]] = {}
        for condition in conditions_of(where, self.names, self.form.names):
            found.setdefault(condition.column, []).append(condition)
        return found

    def _limits(self, where: Where | None) -> dict[str, Limits]:
        """What the conditions leave of each column that they are about."""
        found = {} if where is None else self._conditions(where)
        return {name: self.schema[self.column(name)].limits(conditions) for name, conditions in found.items()}

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> "TableRenderer":
        """The renderer of tables."""
        from usd3.kinds.table.rendering import TableRenderer

        return TableRenderer(self, request)

    def page(self, request: Request) -> "TablePage":
        """The rows as the studio shows them."""
        from usd3.kinds.table.page import TablePage

        return TablePage(self, request)

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """One for new rows, and one for empty cells."""
        ending = self.form.ending or ".csv"
        filled = f" --prompt holes{ending} --out filled{ending}  # empty cells are drawn"
        return [f" --num 1000 --out new{ending}", filled]

    # ---- measures -----------------------------------------------------------------------------------------------

    def judge(self, dataset: Any, settings: Any, device: str | None, option: str) -> "TableJudge":
        """The judge that compares rows with held-out rows."""
        from usd3.kinds.table.judge import TableJudge

        return TableJudge(dataset, settings.tables, settings.limit, settings.seed)

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """A line with the number of rows drawn and of the rows they are compared with."""
        num = settings["tables"]["num"] or compared_with["held_out_rows"]
        drawn = f"{num} rows in {settings['steps']} steps, seed {settings['seed']}"
        line = drawn if settings["runs"] == 1 else f"{settings['runs']} sets of {drawn}"
        return f"{line}, against {compared_with['held_out_rows']} held-out rows"


def _listed(names: list[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:_MOST_LISTED]) + (f" and {len(names) - _MOST_LISTED:,} more" * (len(names) > _MOST_LISTED))


def _num_classes(schema: Sequence[Column]) -> int:
    """The largest number of categories of a column, at least 2."""
    return max([2, *(column.size for column in schema)])


def _combined(series: Any, drawn: Any, known: Any) -> Any:
    """`series` where `known` (n,), else `drawn`, in the dtype of `drawn` where that holds the values exactly."""
    mixed = series.astype(object).where(known, drawn.astype(object))
    try:
        typed = mixed.astype(drawn.dtype)
    except (TypeError, ValueError):
        return mixed.infer_objects()
    return typed if bool((typed.astype(object) == mixed)[known].all()) else mixed.infer_objects()
