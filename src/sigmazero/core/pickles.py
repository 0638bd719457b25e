"""Look through a pickle before it is read: nothing in it may take the process down.

The standard reader runs no code once it is denied the names of functions. But the hash of a nested tuple recurses until
the interpreter crashes, or branches for ever, and one number in the file makes a table of gigabytes.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any

STEPS = 2_000_000
TUPLE = 2_000

_GET = {"GET", "BINGET", "LONG_BINGET"}
_PUT = {"PUT", "BINPUT", "LONG_BINPUT"}
_TUPLES = {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}


class Overdone(pickle.UnpicklingError):
    """A pickle that no program wrote for its data."""


def look_through(data: bytes, start: int = 0) -> int:
    """Check the pickle that begins at `start`, and return where it ends.

    Each value on the stack is followed by the number of values inside it. Only tuples count: they are hashed whole,
    while lists and dictionaries cannot be hashed and so end the recursion.
    """
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    end = start
    for count, (code, argument, place) in enumerate(_codes(data, start)):
        if count > STEPS:
            raise Overdone(f"it has more than {STEPS} instructions")
        end = place + 1
        if code.name == "MARK":
            marks.append(len(stack))
        elif code.name in _GET:
            stack.append(memo[int(argument)])
        elif code.name in _PUT or code.name == "MEMOIZE":
            where = len(memo) if argument is None else int(argument)
            if not 0 <= where <= STEPS:  # the reader makes its table as long as the largest number
                raise Overdone(f"it numbers a value {where}")
            memo[where] = stack[-1]
        else:
            _apply(code, stack, marks)
    return end


def _codes(data: bytes, start: int) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int]]:
    stream = io.BytesIO(data)
    stream.seek(start)
    for code, argument, place in pickletools.genops(stream):
        yield code, argument, place or 0


def _apply(code: pickletools.OpcodeInfo, stack: list[int], marks: list[int]) -> None:
    """Do to the stack what an instruction does, in numbers of values."""
    if code.name == "DUP":
        stack.append(stack[-1])
        return
    if code.name == "POP" and marks and marks[-1] == len(stack):
        marks.pop()
        return
    taken = len(code.stack_before)
    if pickletools.markobject in code.stack_before:  # all above the mark, and what is named before it
        taken = code.stack_before.index(pickletools.markobject) + len(stack) - marks.pop()
    if taken > len(stack):
        raise Overdone("it takes more values than it has made")
    inside = stack[len(stack) - taken :]
    del stack[len(stack) - taken :]
    size = 1
    if code.name in _TUPLES:
        size += sum(inside)
        if size > TUPLE:
            raise Overdone(f"it nests or repeats tuples to more than {TUPLE} values")
    stack.extend([size] * len(code.stack_after))
