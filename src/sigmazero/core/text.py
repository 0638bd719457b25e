"""Names that others chose, made harmless before they reach a terminal or a spreadsheet."""

import re

# Control characters move the cursor or send commands to a terminal; those that turn the direction of writing, and those
# that end a line unseen, make a text look like another one. A line's end is left.
_CONTROL = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# A cell that begins so is a formula, also after blanks.
_FORMULA = re.compile(r"\s*[=+\-@\t\r]")


def visible(text: str) -> str:
    r"""A text in which control characters are spelled out.

    >>> print(visible("red: \x1b[31m"))
    red: \x1b[31m
    """
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula; a number stays as it is.

    >>> harmless("=1+1"), harmless("sigma-zero"), harmless("-0.5"), harmless("-inf")
    ("'=1+1", 'sigma-zero', '-0.5', '-inf')
    """
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
