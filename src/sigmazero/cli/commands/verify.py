"""`sigmazero verify`: check every stored number again."""

from typing import Annotated

import typer

from sigmazero.bench import verify as recheck
from sigmazero.bench.cells import Loader
from sigmazero.cli import options
from sigmazero.cli.console import say, tell
from sigmazero.store.store import Store

SHOWN = 50


def verify(
    store: options.StoreFile,
    batch_size: Annotated[
        int, typer.Option(metavar="N", help="Rows at a time; other than the run's.")
    ] = recheck.BATCH_SIZE,
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    export_8bit: Annotated[
        bool, typer.Option("--export-8bit", help="Also tell how many still fool once rounded to 8-bit values.")
    ] = False,
    trust_code: options.TrustCode = False,
    model: options.TrustedModel = None,
    data: options.TrustedData = None,
) -> None:
    """Rebuild every adversarial example from the store, ask its model in fp32, and count the changes again.

    Lists what disagrees; exit code 1 if anything does, or if a cell could not be checked. Cells whose model or data
    is code are checked if you trust it.

    \b
    Example:
      sigmazero verify runs/small.db --export-8bit
    """
    with Store(store) as opened:
        trust = options.trust(trust_code, model, data)
        loader = Loader(options.device(device), model_dir, data_dir, trust)
        verdict = recheck.verify(opened, loader, batch_size=batch_size, export_8bit=export_8bit)
    wrong = [*verdict.disagreements, *verdict.skipped]
    for lines in ([str(one) for one in wrong], [f"note: {note}" for note in verdict.notes]):
        for line in lines[:SHOWN]:
            tell(line)
        if len(lines) > SHOWN:
            tell(f"and {len(lines) - SHOWN} more")
    say(f"{verdict.rows} rows checked, {len(verdict.disagreements)} disagreements")
    if verdict.survive_8bit is not None:
        say(f"{verdict.survive_8bit} of {verdict.found} adversarial examples survive rounding to 8 bits")
    if wrong:
        raise typer.Exit(1)
