"""Sequences as files: FASTA or lines of text, rows of coloured letters, animations; and prompts with holes."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3.kinds.dataset import Sequences
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.kinds.sequence.fasta import ENDINGS, fasta_record, has_lines, read_fasta, write_fasta
from usd3.kinds.sequence.records import Records, read_lines, records_of
from usd3.kinds.text.printing import printable

if TYPE_CHECKING:
    from usd3.kinds.sequence.kind import LetterSequence

__all__ = ["SequenceRenderer"]

_MOST_SEQUENCES = 8  # in one picture, and on the terminal


class SequenceRenderer(Renderer):
    """Writes FASTA files, texts and pictures of letters; reads FASTA files, texts and typed sequences as prompts."""

    kind: "LetterSequence"
    prompts = (*ENDINGS, ".gz", ".txt")
    has_holes = True
    reads_text = True

    def __init__(self, kind: "LetterSequence", request: Request):
        super().__init__(kind)
        self._says_given = any(getattr(request.options, name, None) is not None for name in ("prefix", "fill", "given"))
        self._is_typed = False

    def prompt(self, path: Path) -> tuple[Sequences, Tensor | None]:
        """The sequences of a FASTA file, or of a text with one in each line, and which of their letters are given."""
        is_text = path.suffix.lower() == ".txt" and (has_lines(path) or not self.kind.is_fasta)
        records = read_lines(path, f"prompt = {path}", " " in self.kind.letters) if is_text else read_fasta(path)
        return self._prompt(records, str(path), records.names)

    def text_prompt(self, text: str) -> tuple[Sequences, Tensor | None]:
        """A sequence that was typed, and which of its letters are given."""
        self._is_typed = True
        return self._prompt(records_of([text], ("the prompt",)), text, ())

    def _prompt(self, records: Records, seen: str, names: tuple[str, ...]) -> tuple[Sequences, Tensor | None]:
        require(len(records.codes) > 0, "prompt", seen, "at least one sequence")
        tokens, given = self.kind.tokens_of(records)
        is_whole, hole = bool(given.all()), self.kind.alphabet.unknown[:1]
        expected = f"holes{f', {hole} for each letter to draw' if hole else ''}, or --prefix, --fill or --given"
        short = seen if len(seen) <= 40 else f"{seen[:37]}..."
        require(not is_whole or self._says_given, "prompt", f"{short}, without a hole", expected)
        return Sequences(tokens, names=names), None if is_whole else given

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
            write_fasta(file, drawn.names or _sample_names(len(sequences)), sequences)

    def shown(self, drawn: Drawn) -> str:
        """The first sequences, if one was typed: as the file has them."""
        sequences = self.kind.strings(drawn.tokens[:_MOST_SEQUENCES]) if self._is_typed else []
        if self.kind.is_fasta:
            sequences = [fasta_record(*parts).rstrip("\n") for parts in zip(_sample_names(len(sequences)), sequences)]
        return printable("\n".join(sequences))

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


def _sample_names(num: int) -> list[str]:
    """The names of sequences whose prompts have none."""
    return [f"sample-{i + 1}" for i in range(num)]
