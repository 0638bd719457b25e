"""`sigmazero transfer`: test each model of a store on the examples of the others."""

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn


def transfer(store: options.StoreFile, trust_code: options.TrustCode = False) -> None:
    """Test each model on the examples found for the others.

    The answers are kept in the store and are not asked for again. `sigmazero plot STORE transfer` draws the matrix, and
    a page shows it too.

    \b
    Example:
      sigmazero transfer runs/small.db
      sigmazero plot runs/small.db transfer -o transfer.png
    """
    from sigmazero.bench import transfer as asking
    from sigmazero.store.store import Store

    with Store(store):  # a store that is not there must not be made
        pass
    with Store(store, write=True) as opened:
        asked = asking.transfer(opened, inputs.loader(trust_code), lambda info: warn(f"{info.attack} on {info.model}"))
    echo(f"{asked} examples tested" if asked else "nothing is left to test")
