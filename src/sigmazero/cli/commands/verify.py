"""`sigmazero verify`: check every stored number again."""

from typing import Annotated

import typer

from sigmazero.bench import verify as recheck
from sigmazero.bench.loader import Loader
from sigmazero.bench.rerun import rerun as run_again
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
    rerun: Annotated[
        str | None,
        typer.Option("--rerun", metavar="SHARE", help="Also run some cells again, drawn at random: 5%, or a number."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="With --rerun: for the draw.")] = 0,
    trust_code: options.TrustCode = False,
) -> None:
    """Rebuild every adversarial example from the store, ask its model again, and count the changes again.

    The model is asked in strict fp32 and as torch computes by default on the device. Lists what disagrees; exit
    code 1 if anything does, or if a cell could not be checked. Cells whose model or data is code are checked if you
    trust it. With --rerun a few batches of some cells are attacked again, and
    notes say how they differ: another processor or version may lead a search elsewhere.

    \b
    Example:
      sigmazero verify runs/small.db --export-8bit
      sigmazero verify runs/small.db --rerun 5%
    """
    share = None if rerun is None else part(rerun)
    with Store(store) as opened:
        trust = options.trust(trust_code)
        loader = Loader(options.device(device), model_dir, data_dir, trust)
        verdict = recheck.verify(opened, loader, batch_size=batch_size, export_8bit=export_8bit)
        compared = None if share is None else run_again(opened, loader, share, verdict, seed)
    wrong = [*verdict.disagreements, *verdict.skipped]
    for lines in ([str(one) for one in wrong], [f"note: {note}" for note in verdict.notes]):
        for line in lines[:SHOWN]:
            tell(line)
        if len(lines) > SHOWN:
            tell(f"and {len(lines) - SHOWN} more")
    say(f"{verdict.rows} rows checked, {len(verdict.disagreements)} disagreements")
    if compared is not None:
        say(f"{compared} of them run again (seed {seed})")
    if verdict.survive_8bit is not None:
        say(f"{verdict.survive_8bit} of {verdict.found} adversarial examples survive rounding to 8 bits")
    if wrong:
        raise typer.Exit(1)


def part(text: str) -> float | int:
    """A share of all cells, or a number of them.

    >>> part("5%"), part("3")
    (0.05, 3)
    """
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / 100 if text.endswith("%") else int(number)
    except ValueError:
        share = 0
    if not share > 0 or (isinstance(share, float) and share > 1):
        raise ValueError(f"--rerun {text}: give a share of the cells, such as 5%, or a number of them, 1 or more")
    return share
