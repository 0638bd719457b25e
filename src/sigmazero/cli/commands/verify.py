"""`sigmazero verify`: check every stored number again."""

from typing import Annotated

import typer

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn

MAX_LINES = 50
EightBit = Annotated[
    bool, typer.Option("--eight-bit", help="Also count how many still fool once rounded to 8-bit values.")
]
Rerun = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Also run some cells again, drawn at random: 5%, or a number.")
]


def verify(
    store: options.StoreFile,
    rerun: Rerun = None,
    eight_bit: EightBit = False,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Re-check every stored example against its model.

    Each example is rebuilt, its changes are counted, and the model is asked in strict fp32 and as torch computes by
    default. Exit code 1 if anything disagrees or a cell could not be checked. With --rerun a few batches are attacked
    again, and notes say how they differ: another processor or version may lead a search elsewhere.

    \b
    Example:
      sigmazero verify runs/small.db --eight-bit
      sigmazero verify runs/small.db --rerun 5%
    """
    from sigmazero.bench import verify as recheck
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.verify import rerun as run_again
    from sigmazero.store.store import Store

    share = None if rerun is None else part(rerun)
    with Store(store) as opened:
        loader = Loader(inputs.device(device), trust=inputs.trust(trust_code))
        verdict = recheck.verify(opened, loader, export_8bit=eight_bit)
        compared = None if share is None else run_again(opened, loader, share, verdict)
    wrong = [*verdict.disagreements, *verdict.skipped]
    for lines in ([str(one) for one in wrong], [f"note: {note}" for note in verdict.notes]):
        for line in lines[:MAX_LINES]:
            warn(line)
        if len(lines) > MAX_LINES:
            warn(f"and {len(lines) - MAX_LINES} more")
    echo(f"{verdict.rows} rows checked, {len(verdict.disagreements)} disagreements")
    if compared is not None:
        echo(f"{compared} of them run again")
    if verdict.survive_8bit is not None:
        echo(f"{verdict.survive_8bit} of {verdict.found} adversarial examples survive rounding to 8 bits")
    if wrong:
        raise typer.Exit(1)


def part(text: str) -> float | int:
    """Return a share of all cells, or a number of them.

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
