"""`sigmazero verify`: check the results of a store again."""

import typer

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn_of


def verify(
    store: options.StoreFile,
    rerun: str | None = typer.Option(
        None, metavar="SHARE", help="Also run some cells again, drawn at random: 5% of them, or a number."
    ),
    eight_bit: bool = typer.Option(
        False, "--eight-bit", help="Also count the examples that still fool the model after rounding to 8 bits."
    ),
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Re-check every stored example against its model.

    Each example is rebuilt, its changes are counted, and the model is asked in strict fp32 and in torch's default
    settings. Exit code 1 if anything disagrees or could not be checked. With --rerun some batches are attacked again,
    and notes say how the results differ: a search may take another path on another processor.

    \b
    Example:
      sigmazero verify runs/small.db --eight-bit
      sigmazero verify runs/small.db --rerun 5%
    """
    from sigmazero.bench import verify as recheck
    from sigmazero.bench.verify import rerun as run_again
    from sigmazero.store.store import Store

    share = None if rerun is None else part(rerun)
    with Store(store) as opened:
        loader = inputs.loader(trust_code, device)
        verdict = recheck.verify(opened, loader, export_8bit=eight_bit)
        compared = None if share is None else run_again(opened, loader, share, verdict)
    wrong = [*verdict.disagreements, *verdict.skipped]
    warn_of([str(one) for one in wrong])
    warn_of([f"note: {note}" for note in verdict.notes])
    echo(str(verdict))
    if compared is not None:
        echo(f"{compared} rows run again")
    if verdict.survive_8bit is not None:
        echo(f"{verdict.survive_8bit} of {verdict.found} adversarial examples survive rounding to 8 bits")
    if wrong:
        raise typer.Exit(1)


def part(text: str) -> float | int:
    """Return the share of cells to run again, or their number.

    >>> part("5%"), part("3")
    (0.05, 3)
    """
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else int(text)
    except ValueError:
        share = 0
    if share <= 0:
        raise ValueError(f"--rerun {text}: give a share of the cells, such as 5%, or a number, such as 3")
    return share
