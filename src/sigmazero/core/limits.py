"""How much memory a file may ask for: a stated limit, asked about before the memory is taken.

A file of a few kilobytes can claim to hold gigabytes, and packed zeros do. What is claimed is counted first.
"""

import os

VARIABLE = "SIGMAZERO_MAX_BYTES"
DEFAULT = 8 << 30


class TooLarge(ValueError):
    """What a file asks for is over the limit."""


def most() -> int:
    """The bytes that reading one file may take: $SIGMAZERO_MAX_BYTES, or 8 GiB."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return DEFAULT
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"{VARIABLE}={given!r} is no number of bytes; write one such as {DEFAULT}, or unset it")
    return int(given)


def afford(wanted: int, what: str, advice: str = "") -> None:
    """Refuse what would take more memory than the limit; `what` begins the sentence, `advice` ends it.

    >>> afford(40 * 10**9, "w.pt")
    Traceback (most recent call last):
    ...
    sigmazero.core.limits.TooLarge: w.pt asks for 40.0 GB of memory and 8.6 GB are allowed; \
raise SIGMAZERO_MAX_BYTES (now 8589934592) where you trust the file
    """
    if wanted > (limit := most()):
        raise TooLarge(
            f"{what} asks for {wanted / 1e9:.1f} GB of memory and {limit / 1e9:.1f} GB are allowed; "
            f"{advice}raise {VARIABLE} (now {limit}) where you trust the file"
        )
