"""Tables as files and as pictures, and files with empty cells as prompts."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.dataset import Sequences
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.kinds.table.columns import Cells
from usd3.kinds.table.dtypes import normalised
from usd3.kinds.table.files import source_of, write_parquet, write_text
from usd3.kinds.table.form import ENDINGS
from usd3.kinds.table.frames import require_pandas, require_pyarrow
from usd3.kinds.table.options import TableOptions

if TYPE_CHECKING:
    from usd3.kinds.table.kind import Table

__all__ = ["TableRenderer"]

_MOST_ROWS = 16  # of a picture
_MOST_PROMPT_ROWS = 2**22


class TableRenderer(Renderer):
    """Writes tables in the form of the training file, and reads tables whose empty cells are to be drawn."""

    kind: "Table"
    prompts = ENDINGS
    has_holes = True

    def __init__(self, kind: "Table", request: Request):
        super().__init__(kind)
        if request.suffix == ".parquet" or (request.suffix == "" and kind.form.ending == ".parquet"):
            require_pyarrow(f"a {kind.form.ending or request.suffix} file")
        require_pandas("a table")
        self.first = request.first
        self.form = kind.form
        self._prompt: Any = None  # the DataFrame of the prompt

    def prompt(self, path: Path) -> tuple[Sequences, Tensor]:
        """The rows of a file, and which cells are given: empty cells and absent columns are not."""
        options = TableOptions(missing=list(self.kind.form.missing))
        source = source_of(str(path), options, self.kind.form.names, is_prompt=True)
        pd = require_pandas()
        frame = pd.concat(list(source.chunks()), ignore_index=True)
        require(0 < len(frame) <= _MOST_PROMPT_ROWS, "prompt", f"{len(frame)} rows", f"1..{_MOST_PROMPT_ROWS:,} rows")
        if source.is_text and not source.form.header:
            frame = frame.set_axis(self._names(len(frame.columns), path), axis=1)
        self._prompt = frame
        self.form = replace(self.form, header=source.form.header)
        tokens, given = self.kind.tokens(frame, name=str(path))
        return Sequences(tokens), given

    @property
    def rows_of_prompt(self) -> Any:
        """The rows of the prompt as they are in its file, a DataFrame; None: nothing was read."""
        return self._prompt

    def _names(self, width: int, path: Path) -> list[str]:
        """The names of the columns of a prompt without a header: all of the training file, or those of the model."""
        every, own = list(self.kind.form.names), self.kind.names
        fits = width in (len(every), len(own))
        header = "" if not self.kind.form.header else f", or a first line with names among {', '.join(own)}"
        require(fits, f"columns of {path}", width, f"{len(own)}{header}")
        return every if width == len(every) else own

    # ---- writing ------------------------------------------------------------------------------------------------

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write the rows as a table: samples.csv, or with the ending of the training file, in a folder."""
        if out.suffix not in ("", *self.prompts):
            return
        file = out if out.suffix else out / f"samples{self.kind.form.ending or '.csv'}"
        if file.suffix == ".parquet":
            write_parquet(self._frame(drawn), file)
        else:
            write_text(self._texts(drawn), file, self.form)

    def _rows_of_prompt(self, drawn: Drawn) -> Any:
        """The rows of the prompt that were filled, a DataFrame; None: there was none, or it was no table."""
        if self._prompt is None or drawn.prompt is None:
            return None
        num = len(drawn.tokens)
        single = len(self._prompt) == 1
        rows = np.zeros(num, dtype=int) if single else np.arange(self.first, self.first + num)
        return self._prompt.iloc[rows].reset_index(drop=True)

    def _frame(self, drawn: Drawn) -> Any:
        """The rows as a DataFrame; what the prompt gives stays as it is."""
        prompt = self._rows_of_prompt(drawn)
        frame = self.kind.objects(drawn.tokens, drawn.seed, drawn.where, given=drawn.given)
        if prompt is None:
            return frame
        frame = frame.set_axis(self.kind.names, axis=1)  # texts, as in the prompt and in any Parquet file
        for i, column in enumerate(self.kind.schema):
            if column.name in prompt.columns:
                given = self._given(drawn, i)
                raw, known = column.raw_of_data(self._cells(prompt[column.name]))
                frame[column.name] = frame[column.name].where(~given, column.series(raw, known))
        left_out = [name for name in self.kind.form.names if name in prompt.columns and name not in self.kind.names]
        return frame.assign(**{name: prompt[name] for name in left_out})[self._order(left_out)]

    def _texts(self, drawn: Drawn) -> dict[str, NDArray[Any]]:
        """The rows as texts; what the prompt gives stays letter by letter where it is a text."""
        texts = self.kind.texts(drawn.tokens, drawn.seed, drawn.where, drawn.given)
        prompt = self._rows_of_prompt(drawn)
        if prompt is None:
            return texts
        for i, column in enumerate(self.kind.schema):
            if column.name in prompt.columns:
                kept = prompt[column.name]
                if normalised(kept)[0] != "text":
                    kept = column.cells(*column.raw_of_data(self._cells(kept)))
                texts[column.name] = np.where(self._given(drawn, i), np.asarray(kept, dtype=object), texts[column.name])
        left_out = [name for name in self.kind.form.names if name in prompt.columns and name not in self.kind.names]
        for name in left_out:
            kept = prompt[name].astype(object).map(str, na_action="ignore")
            texts[name] = np.where(kept.isna(), "", kept.to_numpy(dtype=object))
        return {name: texts[name] for name in self._order(left_out)}

    def _order(self, left_out: list[str]) -> list[str]:
        """The names of the model's columns and of some others, as in the training file."""
        return [name for name in self.kind.form.names if name in self.kind.names or name in left_out]

    def _cells(self, series: Any) -> Cells:
        return Cells(normalised(series)[1], self.kind.form.missing, "the prompt")

    def _given(self, drawn: Drawn, column: int) -> NDArray[np.bool_]:
        """(N,) which rows have a given cell in this column."""
        given = torch.zeros(self.kind.shape, dtype=torch.bool) if drawn.given is None else drawn.given
        return np.asarray(given.expand(drawn.tokens.shape)[:, column].cpu())

    # ---- pictures -----------------------------------------------------------------------------------------------

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first rows as a table; cells that the prompt gave are marked."""
        from usd3.pictures import table_sheet

        rows = min(_MOST_ROWS, len(drawn.tokens))
        texts = self._texts(drawn)
        columns = {name: cells[:rows].tolist() for name, cells in texts.items() if name in self.kind.names}
        given = None if drawn.given is None else drawn.given.expand(drawn.tokens.shape)[:rows]
        table_sheet(columns, path, given)
