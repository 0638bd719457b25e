"""What waits to be bounded, level by level, so that batches are full and of one kind."""

from dataclasses import dataclass, field, fields
from typing import Any

import torch

GIVEN = 1.0  # seconds that an input has before others that had less come first


@dataclass
class Piles:
    """Tasks and boxes by level. `batch` is how many are taken at once."""

    batch: int
    held: dict[int, list[Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.held)

    def push(self, level: int, some: Any) -> None:
        """Put tasks or boxes of a level in."""
        if len(some):
            self.held.setdefault(level, []).append(some)

    def pop(self) -> tuple[int, Any]:
        """A level, and as many of it as fit into a batch: of the lowest that fills one, or else of the fullest."""
        counts = {level: sum(len(part) for part in parts) for level, parts in self.held.items()}
        full = [level for level, count in counts.items() if count >= self.batch]
        level = min(full) if full else max(counts, key=lambda each: (counts[each], -each))
        parts = self.held.pop(level)
        taken: list[Any] = []
        room = self.batch
        while parts and room:
            part = parts.pop()
            if len(part) > room:
                parts.append(part.take(slice(0, len(part) - room)))
                part = part.take(slice(len(part) - room, len(part)))
            taken.append(part)
            room -= len(part)
        if parts:
            self.held[level] = parts
        return level, join(taken)


def join(parts: list[Any]) -> Any:
    """Several tasks or boxes, which are made of tensors alone, in one."""
    kind = type(parts[0])
    return kind(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(kind)))
