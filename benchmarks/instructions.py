"""What the Triton kernels compile to: registers, and instructions for each category. It needs no GPU.

    python benchmarks/instructions.py

Triton brings NVIDIA's assembler and disassembler, so the code for a GPU can be made and counted anywhere. The rows are
the passes of the loss over the categories of a long row, as `usd3.kernels.triton_loss` cuts it.

`instructions` and `special` (exp2, log2 and reciprocal, of which a multiprocessor starts 16 in a clock, and 128 of the
others) are those of the shortest way through a pass, for each category: the way that blocks without x and x_0 take.
`spilled` is the number of bytes that do not fit into registers.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__" and os.environ.pop("TRITON_INTERPRET", ""):  # interpreted kernels do not compile
    os.execv(sys.executable, [sys.executable, *sys.argv])

import triton
import triton.language as tl
from shared import write_rows
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from usd3.bench.machine import machine
from usd3.kernels import triton_coefficients, triton_draw, triton_loss
from usd3.kernels.triton_common import ABSORBING, TABLE, UNIFORM

NOISES = {"uniform": UNIFORM, "absorbing": ABSORBING, "table": TABLE}
TYPES = {"fp32": "*fp32", "bf16": "*bf16", "fp16": "*fp16", "fp64": "*fp64"}
SIZES = (8192, 50257, 50304)
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_WARP = 32
_TARGET = GPUTarget("cuda", 90, _WARP)
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?([A-Z0-9_.]+)(.*?);")
_POINTERS = {
    **{"xs": "*i64", "x_0s": "*i64", "noisy": "*i64", "free": "*i1", "supports": "*i1", "failed": "*i1"},
    **dict.fromkeys(("coefficients", "weights", "m_xs", "us"), "*fp64"),
}


class Instruction(NamedTuple):
    """One instruction: its name without modifiers, and the number of the one it may jump to."""

    name: str
    target: int | None


class Code(NamedTuple):
    """A compiled kernel."""

    instructions: Sequence[Instruction]
    registers: int
    spilled: int

    @property
    def loops(self) -> list[tuple[int, int]]:
        """The first and last instruction of each loop."""
        return [(to, i) for i, (_, to) in enumerate(self.instructions) if to is not None and to < i]

    def shortest(self, first: int, last: int) -> list[str]:
        """The names of the fewest instructions that lead from the first to the last of a loop."""
        ways: dict[int, list[str]] = {first: []}
        for i in range(first, last + 1):
            if i not in ways:
                continue  # no way leads here
            name, target = self.instructions[i]
            way = [*ways[i], name]
            for following in {i + 1, i + 1 if target is None else target}:
                if following > i and len(way) < len(ways.get(following, [*way, ""])):
                    ways[following] = way
        return ways[last + 1]


def loss_code(K: int, noise: str, dtype: str, **options: bool) -> Code:
    """The loss and its gradient for rows of K categories."""
    chosen = {"STEP": False, "L2": False, "GRADIENT": True, "FREE": True, "WEIGHT_PER_ROW": False, **options}
    return _compiled(
        triton_loss._loss_kernel, K, noise, dtype, chosen, triton_loss.tile(K, noise == "table", chosen["L2"])
    )


def draw_code(K: int, noise: str, dtype: str, **options: bool) -> Code:
    """The draw from rows of K categories."""
    chosen = {"FREE": True, "DAMPED": False, "MASS_ONLY": False, "REPORT": True, **options}
    return _compiled(triton_draw._draw_kernel, K, noise, dtype, chosen, triton_draw.tile(K))


def coefficients_binary(family: int, continuous: bool, step: bool, drawn: bool) -> bytes:
    """The machine code of the coefficients of any batch."""
    kernel = triton_coefficients._coefficients_kernel
    constants = {"FAMILY": family, "CONTINUOUS": continuous, "STEP": step, "DRAWN": drawn, "BLOCK": 128}
    pointers = dict.fromkeys(("times", "befores", "numbers", "out"), "*fp64")
    names = kernel.arg_names
    signature = {name: pointers.get(name, "constexpr" if name in constants else "i32") for name in names}
    options = {"enable_fp_fusion": False}
    code = triton.compile(ASTSource(kernel, signature, constants, {}), target=_TARGET, options=options)
    return bytes(code.asm["cubin"])


def _compiled(kernel: Any, K: int, noise: str, dtype: str, options: Mapping[str, Any], tile: Mapping[str, Any]) -> Code:
    limits = {name: tile[name] for name in ("num_warps", "maxnreg") if name in tile}
    double = dtype == "fp64"
    constants = {
        **{"KIND": NOISES[noise], "MASK": noise == "absorbing", "SUPPORT": False, "K": K},
        **{"FLOAT": tl.float64 if double else tl.float32, **options},
        **{name: value for name, value in tile.items() if name not in limits},
    }
    own = TYPES["fp64" if double else "fp32"]
    pointers = _POINTERS | {"logits": TYPES[dtype], "gradient": TYPES[dtype], "terms": own, "tables": own}
    pointers["out"] = "*fp64" if options.get("MASS_ONLY") else "*i64"
    names = kernel.arg_names
    signature = {name: pointers.get(name, "constexpr" if name in constants else "i32") for name in names}
    divisible = {*pointers, *(("stride", "gradient_stride") if K % 16 == 0 else ())}  # by 16, as at run time
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in divisible}
    source = ASTSource(kernel, signature, constants, attributes)
    binary = triton.compile(source, target=_TARGET, options=limits).asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        usage = _said_by("cuobjdump", "-res-usage", file.name)
        listing = _said_by("nvdisasm", "-c", file.name)
    registers, stack = (int(re.search(rf"{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))  # type: ignore[index]
    return Code(_instructions(listing), registers, stack)


def _said_by(tool: str, *arguments: str) -> str:
    return subprocess.run([_TOOLS / tool, *arguments], capture_output=True, text=True, check=True).stdout


def _instructions(listing: str) -> list[Instruction]:
    """The instructions of a listing, in order."""
    found: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in map(str.strip, listing.splitlines()):
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(found)
        elif match := _LINE.search(line):
            found.append((match[2].split(".")[0], match[3]))
    targets = [re.search(r"`\((\.L_\w+)\)", rest) if name == "BRA" else None for name, rest in found]
    return [Instruction(name, labels[to[1]] if to else None) for (name, _), to in zip(found, targets)]


def passes(K: int, noise: str, dtype: str) -> list[dict[str, Any]]:
    """A row for each pass over a long row."""
    code, tile = loss_code(K, noise, dtype), triton_loss.tile(K, noise == "table")
    at_once = tile["BLOCK"] / (_WARP * tile["num_warps"])  # categories of a thread in a block
    ways = [code.shortest(first, last) for first, last in code.loops if last > first]
    return [
        {
            **{"K": K, "noise": noise, "dtype": dtype, "pass": number},
            "instructions": round(len(way) / at_once, 1),
            "special": round(way.count("MUFU") / at_once, 2),
            "registers": code.registers,
            "spilled": code.spilled,
        }
        for number, way in enumerate(ways, start=1)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile, count, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="numbers of categories, above 4096")
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["fp32", "bf16"])
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "instructions.csv")
    given = parser.parse_args(arguments)
    about = {name: machine()[name] for name in ("triton", "usd3", "commit")}
    rows = [
        {**row, **about}
        for K in given.sizes
        for noise in given.noises
        for dtype in given.types
        for row in passes(K, noise, dtype)
    ]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items() if key not in about))
    write_rows(given.csv, rows)


if __name__ == "__main__":
    main()
