"""What the commands print and write of an attack's result."""

from pathlib import Path

from torch import Tensor

from sigmazero.cli.catalogue import counts_pixels
from sigmazero.cli.console import out, say, tell
from sigmazero.core.attack import Attack
from sigmazero.core.findings import Finding, render
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.report.figures.pictures import is_image, save_picture
from sigmazero.report.formats import result_row, rich_table
from sigmazero.report.runs import choose_ks
from sigmazero.store.results import save_result


def show_figures(result: Result, rows: Rows, attack: Attack, title: str, problem: Problem) -> None:
    """Print the table of a run."""
    say(title, style="bold")
    pixels, channels = counts_pixels(attack) and rows.images.ndim > 2, rows.images.shape[1]
    budget = {"budget": f"{result.budget} pixels"} if pixels else {}
    if pixels and channels > 1 and result.unit == "feature":
        tell(
            f"{attack.name} spends its budget on pixels, each with its {channels} channels, and the table counts "
            "features: with --unit pixel it counts pixels too"
        )
    costs = choose_ks([result.cost.double().cpu().numpy()]) if problem.domain.priced else ()
    figures = result_row(result, rows.labels, costs=costs)
    out().print(rich_table([{"attack": attack.name, **budget, **figures}], down=True))


def show_findings(findings: list[Finding]) -> None:
    """Print what the doctor found as warnings; nothing if all is well."""
    if findings:
        tell(render(findings), style="yellow")


def write_result(
    path: Path | None, result: Result, rows: Rows, targets: Tensor | None, title: str, record: str | None = None
) -> list[Path]:
    """Write the result, and its picture if the inputs are images, to be called before anything is printed of it."""
    if path is None:
        return []
    save_result(path, result, labels=rows.labels, targets=targets, record=record)
    if not is_image(rows.images):
        return [path]
    picture = path.with_suffix(".png")
    save_picture(picture, result, rows.images, rows.labels, title=title, classes=rows.classes)
    return [path, picture]
