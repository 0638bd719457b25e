"""An engine by its name."""

from sigmazero.bench.cells import Loader
from sigmazero.bench.engines.base import Engine
from sigmazero.bench.engines.processes import Processes
from sigmazero.core.inputs import hint

ENGINES = ("local", "processes", "ray")


def choose_engine(
    name: str,
    loader: Loader,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float | None = None,
) -> Engine | None:
    """The engine of that name with so many workers; None for this process, which needs none.

    address           of a Ray cluster: "auto" for the one on this machine, or HOST:PORT; by default Ray is started here
    gpus_per_worker   of each Ray worker; 0.25 puts four on one
    """
    check_engine(name, workers, address, gpus_per_worker)
    if gpus_per_worker is not None and loader.device.type != "cuda":
        raise ValueError(
            f"{gpus_per_worker:g} GPUs for each worker need a CUDA device, and this run is on {loader.device}"
        )
    if name == "local":
        return None
    if name == "processes":
        return Processes(loader, workers)
    from sigmazero.bench.engines.ray import Ray

    return Ray(loader, workers, address, gpus_per_worker)


def check_engine(
    name: str, workers: int | None = None, address: str | None = None, gpus_per_worker: float | None = None
) -> None:
    """Refuse an engine that does not exist, and what makes no sense to it, wherever it is to run."""
    if name not in ENGINES:
        raise ValueError(f"there is no engine {name!r}; {hint(name, ENGINES)}")
    if workers is not None and workers < 1:
        raise ValueError(f"{workers} workers make no sense; give 1 or more")
    if gpus_per_worker is not None and not gpus_per_worker > 0:
        raise ValueError(f"{gpus_per_worker:g} GPUs for each worker make no sense; give more than 0")
    given = {"a number of workers": workers, "an address": address, "a number of GPUs": gpus_per_worker}
    for what in {"local": list(given), "processes": list(given)[1:], "ray": []}[name]:
        if given[what] is not None:
            other = "processes" if given[what] is workers else "ray"
            raise ValueError(f"{what} ({given[what]}) says nothing to the engine {name!r}; use the engine {other!r}")
