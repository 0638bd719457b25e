"""Record where, and with which versions, facts were made."""

import os
import platform
import subprocess
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sigmazero
from sigmazero.run.precision import Numbers

PACKAGE = Path(sigmazero.__file__).parent
CORES = f"{os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Return the versions that may change a result."""
    return {
        "sigmazero": sigmazero.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def provenance(device: torch.device) -> dict[str, Any]:
    """Return versions, device, processor, commit and time of a run."""
    cuda = device.type == "cuda"
    return {
        **versions(),
        "device": torch.cuda.get_device_name(device) if cuda else f"{device.type} ({platform.machine()}, {CORES})",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "numbers": Numbers.current(device).in_words,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **commit(),
    }


@cache
def processor() -> str:
    """Return the model of the processor, and the instructions that torch uses on it: both change the last bits."""
    model = platform.processor()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{model or platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"


@cache
def package_hash() -> str:
    """Return the hash of this package's files: two copies of one version may differ."""
    found = sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return found.hexdigest()


def commit() -> dict[str, Any]:
    """Return the commit of this code and whether it has uncommitted changes, if it runs from a checkout."""
    root = next((folder for folder in PACKAGE.parents if (folder / ".git").exists()), None)
    if root is not None:
        with suppress(OSError, subprocess.SubprocessError):  # without git, or not the owner of the checkout: not known
            how: dict[str, Any] = {"cwd": root, "text": True, "stderr": subprocess.DEVNULL, "timeout": 30}
            head = subprocess.check_output(["git", "rev-parse", "HEAD"], **how).strip()
            return {"commit": head, "dirty": bool(subprocess.check_output(["git", "status", "--porcelain"], **how))}
    return {"commit": None, "dirty": None}


def peak_device(device: torch.device) -> int | None:
    """Return the peak memory of a CUDA device in bytes since `reset_peak`; None for other devices."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def reset_peak(device: torch.device) -> None:
    """Start a new measurement of the device's peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
