"""One thing that is wrong with a pipeline, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.faults import dotted

if TYPE_CHECKING:
    from sparrow.base.faults import Path
    from sparrow.spark.pipelines.model import Node


class Finding(NamedTuple):
    """`text` is a sentence about the part of `node` that `path` leads to."""

    node: Node
    path: Path
    text: str

    def sentence(self) -> str:
        """With the place in the file, if there is one."""
        place = self.node.place
        if place is None:
            return f"{dotted(self.path)}: {self.text}" if self.path else self.text
        at = place.at(*self.path)
        what = dotted((*place.path, *self.path))
        return ": ".join(part for part in (at, what, self.text) if part)
