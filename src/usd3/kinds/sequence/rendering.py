"""Sequences as files: FASTA or lines of text, rows of coloured letters, animations; and prompts with holes."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3.kinds.dataset import Sequences
from usd3.kinds.rendering import Drawn, Renderer
from usd3.kinds.sequence.fasta import ENDINGS, read_fasta, write_fasta
from usd3.kinds.sequence.records import Records, records_of

if TYPE_CHECKING:
    from usd3.kinds.sequence.kind import LetterSequence

__all__ = ["SequenceRenderer"]

_MOST_SEQUENCES = 8  # in one picture


class SequenceRenderer(Renderer):
    """Writes FASTA files, texts and pictures of letters; reads FASTA files, texts and typed sequences as prompts."""

    kind: "LetterSequence"
    prompts = (*ENDINGS, ".gz", ".txt")
    has_holes = True
    reads_text = True

    def prompt(self, path: Path) -> tuple[Sequences, Tensor | None]:
        """The sequences of a FASTA file, or of a text with one in each line, and which of their letters are given."""
        records = self._lines(path) if path.suffix.lower() == ".txt" else read_fasta(path)
        return self._prompt(records, str(path), records.names)

    def text_prompt(self, text: str) -> tuple[Sequences, Tensor | None]:
        """A sequence that was typed, and which of its letters are given."""
        return self._prompt(records_of([text], ("the prompt",)), text, ())

    def _lines(self, path: Path) -> Records:
        """The lines of a text that are not empty; blanks around them count only if the model knows a blank."""
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"prompt = {path}: expected a text in UTF-8 ({error})") from None
        lines = [line.rstrip("\r") if " " in self.kind.letters else line.strip() for line in lines]
        return records_of([line for line in lines if line])

    def _prompt(self, records: Records, seen: str, names: tuple[str, ...]) -> tuple[Sequences, Tensor | None]:
        require(len(records.codes) > 0, "prompt", seen, "at least one sequence")
        tokens, given = self.kind.tokens_of(records)
        return Sequences(tokens, names=names), None if bool(given.all()) else given

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write all sequences into one file."""
        ending = out.suffix or (".fa" if self.kind.is_fasta else ".txt")
        if ending not in (*ENDINGS, ".txt"):
            return
        file = out if out.suffix else out / f"samples{ending}"
        sequences = self.kind.strings(drawn.tokens, drawn.pad)
        if ending == ".txt":
            write_whole(file, "".join(f"{sequence}\n" for sequence in sequences))
        else:
            write_fasta(file, drawn.names or [f"sample-{i + 1}" for i in range(len(sequences))], sequences)

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first sequences as rows of coloured letters."""
        from usd3.pictures import letter_rows

        first = slice(0, _MOST_SEQUENCES)
        rows = self.kind.strings(drawn.tokens[first], None if drawn.pad is None else drawn.pad[first])
        names = None if drawn.names is None else drawn.names[first]
        letter_rows(rows, path, self._colours(), drawn.given_of_first(_MOST_SEQUENCES), names)

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw the way from noise to the first sequences as an animation of coloured cells."""
        from usd3.pictures import animate_denoising
        from usd3.pictures.letters import NOTHING, UNKNOWN

        frames = [frame.flatten(1) for frame in drawn.frames]
        colours = list(self._colours().values())
        colours += [NOTHING] * self.kind.has_ends + [UNKNOWN] * (drawn.mask is not None)
        given = drawn.given_of_first(len(frames[0]))
        animate_denoising(frames, path, len(colours), given=given, mask=drawn.mask, colours=colours)

    def _colours(self) -> dict[str, str]:
        from usd3.pictures import letter_colours

        return letter_colours(self.kind.letters, self.kind.form)
