"""On what a measurement was made."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch

from usd3._version import __version__

__all__ = ["machine"]


def machine(device: torch.device | str = "cpu") -> dict[str, str]:
    """Processor, versions and commit: "+changes" where files differ from it, empty where there is no checkout."""
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
    """The model of the CPU, where the system tells it."""
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
    if not tracked:  # no checkout, or one of something else in which this package lies
        return ""
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit


def _git(folder: Path, *arguments: str) -> str:
    """What git answers; nothing where it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
