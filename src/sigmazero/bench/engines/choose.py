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
    if name not in ENGINES:
        raise ValueError(f"there is no engine {name!r}; {hint(name, ENGINES)}")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers {workers} must be 1 or more")
    if gpus_per_worker is not None and not gpus_per_worker > 0:
        raise ValueError(f"--gpus-per-worker {gpus_per_worker:g} must be more than 0")
    if gpus_per_worker is not None and loader.device.type != "cuda":
        raise ValueError(
            f"--gpus-per-worker {gpus_per_worker:g} needs a CUDA device, and this run is on {loader.device}"
        )
    given = {"--workers": workers, "--address": address, "--gpus-per-worker": gpus_per_worker}
    needless = {"local": tuple(given), "processes": ("--address", "--gpus-per-worker"), "ray": ()}[name]
    for option in needless:
        if given[option] is not None:
            other = "processes" if option == "--workers" else "ray"
            raise ValueError(f"{option} {given[option]} says nothing to the engine {name!r}; use --engine {other}")
    if name == "local":
        return None
    if name == "processes":
        return Processes(loader, workers)
    from sigmazero.bench.engines.ray import Ray

    return Ray(loader, workers, address, gpus_per_worker)
