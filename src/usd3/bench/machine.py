"""The machine, the versions and the commit of a measurement."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch

from usd3._internal.checks import require
from usd3._version import __version__

__all__ = ["device_to_measure", "machine"]


def device_to_measure(name: str | None) -> torch.device:
    """The CPU or the GPU; None: a GPU if there is one."""
    available = torch.cuda.is_available()
    if name is None:
        return torch.device("cuda" if available else "cpu")
    require(name in ("cpu", "cuda"), "device", name, '"cpu" or "cuda"')
    require(name == "cpu" or available, "device", name, '"cpu", as there is no GPU')
    return torch.device(name)


def machine(device: torch.device | str = "cpu") -> dict[str, str]:
    """Processor, threads, versions and commit.

    The commit ends with "+changes" if files of the checkout differ from it, and is empty without a checkout.
    """
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu()
    return {
        "machine": name,
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "usd3": __version__,
        "commit": _commit(Path(__file__).parent),
    }


def _cpu() -> str:
    """The model of the CPU, if the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or f"{platform.machine()} CPU"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _commit(folder: Path) -> str:
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    tracked = commit and _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    if not tracked:  # no checkout, or the checkout of something else around this package
        return ""
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit


def _git(folder: Path, *arguments: str) -> str:
    """The answer of git; empty if git fails or is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
