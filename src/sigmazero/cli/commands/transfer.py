"""`sigmazero transfer`: ask the models of a store about each other's examples."""

from sigmazero.bench import transfer as asking
from sigmazero.bench.loader import Loader
from sigmazero.cli import options
from sigmazero.cli.console import say, tell
from sigmazero.store.store import Store


def transfer(
    store: options.StoreFile,
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Ask every model of a store about the examples found on the others, and keep the answers in the store.

    What is stored already is not asked again. Then `sigmazero report STORE --transfer FILE` draws the matrix, and a
    page has it too.

    \b
    Example:
      sigmazero transfer runs/small.db
      sigmazero report runs/small.db --transfer transfer.png
    """
    with Store(store):  # a store that is not there must not be made
        pass
    with Store(store, write=True) as opened:
        loader = Loader(options.device(device), model_dir, data_dir, options.trust(trust_code))
        asked = asking.transfer(opened, loader, lambda info: tell(f"{info.attack} on {info.model}"))
    say(f"{asked} examples asked about" if asked else "nothing is left to ask")
