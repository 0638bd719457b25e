"""What a result offers in a notebook: figures, tables, files. Whatever draws or writes is loaded when it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor

    from sigmazero.core.result import Result


class ResultFace:
    """What people see of a result, and do with it."""

    def save(self, path: str | Path) -> Path:
        """Write everything to an `.npz` file; `sz.load_result` reads it."""
        from sigmazero.store.results import keep_result

        return keep_result(Path(path), self._me)

    @staticmethod
    def load(path: str | Path) -> Result:
        """Read a result that `save` or a command with `--out` wrote; the same function as `sz.load_result`."""
        from sigmazero.store.results import load_result

        return load_result(path)

    def to_pandas(self) -> Any:
        """A data frame with a line per sample, by its id."""
        from sigmazero.report.notebook import frame

        return frame(self._me)

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the share of samples fooled over the number of changes, as `plot_curve`; gives matplotlib's axes."""
        return self.plot_curve(ax, label=label)

    def plot_curve(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the share of samples fooled with at most k changes, with its 95 % band; gives matplotlib's axes."""
        from sigmazero.report.notebook import plot_curve

        return plot_curve(self._me, ax, label)

    def plot_examples(self, x: Tensor | None = None, *, count: int = 6) -> Any:
        """Draw images before, after and what changed, from the easiest to the hardest; gives rows of axes.

        x  the clean inputs, if the result does not know them
        """
        from sigmazero.report.notebook import plot_examples

        return plot_examples(self._me, x, count)

    def plot_changes(self, x: Tensor | None = None, ax: Any = None, *, count: int = 15) -> Any:
        """Draw how often each pixel changed, or which `count` features changed most often; gives the axes."""
        from sigmazero.report.notebook import plot_changes

        return plot_changes(self._me, x, ax, count)

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures, the curve and a few examples."""
        from sigmazero.report.notebook import as_html

        return as_html(self._me)

    @property
    def _me(self) -> Result:
        return cast("Result", self)
