"""`sigmazero transfer`: ask the models of a store about each other's examples."""

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn


def transfer(store: options.StoreFile, device: options.Device = "auto", trust_code: options.TrustCode = False) -> None:
    """Test each model on the examples found for the others.

    The answers are kept in the store, and what is stored already is not asked again. `sigmazero plot STORE transfer`
    draws the matrix, and a page has it too.

    \b
    Example:
      sigmazero transfer runs/small.db
      sigmazero plot runs/small.db transfer -o transfer.png
    """
    from sigmazero.bench import transfer as asking
    from sigmazero.bench.loader import Loader
    from sigmazero.store.store import Store

    with Store(store):  # a store that is not there must not be made
        pass
    with Store(store, write=True) as opened:
        loader = Loader(inputs.device(device), trust=inputs.trust(trust_code))
        asked = asking.transfer(opened, loader, lambda info: warn(f"{info.attack} on {info.model}"))
    echo(f"{asked} examples asked about" if asked else "nothing is left to ask")
