"""How a table is laid out in a file, so that new rows are written in the same form."""

from dataclasses import dataclass

__all__ = ["ENDINGS", "TableForm"]

ENDINGS = (".csv", ".tsv", ".data", ".parquet")
"""The endings of files that are tables."""


@dataclass(frozen=True)
class TableForm:
    """The layout of a file, or of a DataFrame.

    Args:
        ending: the ending of the file; "": the table was a DataFrame.
        delimiter: what stands between cells.
        header: whether the first line has the names of the columns.
        padded: whether a space follows each delimiter.
        encoding: of the text.
        newline: what ends a line.
        missing: cells that mean "no value".
        names: the names of all columns in their order, also of those that are left out.
        has_integer_names: whether the columns of a DataFrame have numbers as names.
    """

    ending: str = ""
    delimiter: str = ","
    header: bool = True
    padded: bool = False
    encoding: str = "utf-8"
    newline: str = "\n"
    missing: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    has_integer_names: bool = False

    def __post_init__(self) -> None:
        for field in ("missing", "names"):  # JSON has lists
            object.__setattr__(self, field, tuple(getattr(self, field)))

    def delimiter_for(self, ending: str) -> str:
        """What stands between cells of a file with this ending: as in training if that file had it, too."""
        if ending == self.ending:
            return self.delimiter
        if ending == ".tsv":
            return "\t"
        return "," if self.ending == ".tsv" or self.delimiter == "\t" else self.delimiter
