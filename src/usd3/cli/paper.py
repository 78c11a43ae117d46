"""usd3 paper: the options of the command; its code lies in the folder paper/ of a checkout."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import usd3
from usd3._internal.checks import as_count, as_number
from usd3._internal.fields import require_fields

__all__ = ["PaperOptions", "paper"]

_PACKAGE = Path(usd3.__file__).parent
_CODE = "usd3_paper"


@dataclass
class PaperOptions:
    """Run what gives a table or figure of the paper, and show our numbers beside the published ones.

    `usd3 paper list` names them, `usd3 paper show NAME` prints one with the results that are kept in the folder paper/,
    or else with those of a run, `usd3 paper run NAME` measures it anew, into a folder of its own. The same command goes
    on where it stopped; until then the table has the rows that are measured. `usd3 paper run all` measures all tables,
    and first says how long it will take on this machine; `--dry_run true` says that and the commands alone. The command
    needs a checkout of the repository, installed with `pip install --editable .`.

    A run can be kept at any time: `usd3 paper keep NAME` puts its measured trainings, without their weights, into the
    folder paper/, and `usd3 paper run NAME --kept true` begins with them, also on another machine of this kind.

    Args:
        action: "list", "show", "run", "keep", or "publish", which copies the results of a run into the folder paper/.
        name: of the table or figure; or, where no table has it, that of a study, for all its tables; or, to run them,
            all.
        data: file or folder of the data, or a word that the table knows, such as bach; null: where it needs none. For
            all tables one of each kind: pop909=FILE,cifar10=FOLDER; those whose data are missing are left out.
        steps: of each training; null: as the study says.
        trainings: of each method; null: as the study says, which may have more of some methods than of others. A later
            command may ask for more.
        budget: minutes of each training, where a study has some; null: as the study says.
        stop_after: stop after so many minutes; trainings then write a checkpoint, and the same command goes on. A
            measurement that is not over begins again, so let there be time for one. null: when all is done.
        limit: measure with so many held-out objects or images; null: as the study says.
        kept: begin a new run with the trainings that `keep` put into the folder paper/.
        jobs: methods to train or measure side by side.
        inception: file of the weights of the Inception network, for IS and FID; null: without these.
        dry_run: print the estimate and the commands that are left, and run none of them.
        price: of an hour of this machine, to say what it will cost; null: time alone.
        out: folder of all runs, a folder in it for each study.
        paper: a folder with tables and studies; null: the folder paper/ of the checkout.
        trust_code: allow the studies of another folder than ours to be run: a study is a list of commands, also of
            Python scripts.
    """

    action: Literal["list", "show", "run", "keep", "publish"] = "list"
    name: str | None = None
    data: str | None = None
    steps: int | None = None
    trainings: int | None = None
    budget: float | None = None
    stop_after: float | None = None
    limit: int | None = None
    kept: bool = False
    jobs: int = 1
    inception: str | None = None
    dry_run: bool = False
    price: float | None = None
    out: str = "runs/paper"
    paper: str | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        require_fields(self)
        as_count(self.jobs, "jobs", 1)
        as_count(4 if self.limit is None else self.limit, "limit", 4)
        for name in ("steps", "trainings"):
            as_count(1 if getattr(self, name) is None else getattr(self, name), name, 1)
        for name in ("budget", "stop_after", "price"):
            as_number(1 if getattr(self, name) is None else getattr(self, name), name, 0)


def paper(options: PaperOptions) -> None:
    """Run the command with the code of the checkout that this package lies in."""
    _load(_code_folder(_PACKAGE))
    importlib.import_module(f"{_CODE}.command").paper(options)


def _code_folder(package: Path) -> Path:
    """<root>/paper/usd3_paper of the checkout whose package is <root>/src/usd3; an installed wheel has none."""
    folder = package.parents[1] / "paper" / _CODE
    if package.parent.name != "src" or not (folder / "__init__.py").is_file():
        raise FileNotFoundError(
            f"usd3 paper needs a checkout of the repository, and this usd3 is installed in {package.parent}: "
            "clone the repository and run `pip install --editable .` in it"
        )
    return folder


def _load(folder: Path) -> None:
    """Import the package in this folder. `sys.path` is not searched: another package of the same name never runs."""
    if _CODE in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(_CODE, folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[_CODE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[_CODE])
