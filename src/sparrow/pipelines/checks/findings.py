"""One fault of a pipeline and its location."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.faults import dotted
from sparrow.pipelines.model import Flow, PipelineModel

if TYPE_CHECKING:
    from sparrow.base.faults import Path
    from sparrow.pipelines.model import Node


class Finding(NamedTuple):
    """A fault: `text` is a sentence about the part of `node` at `path`."""

    node: Node
    path: Path
    text: str

    @property
    def is_known(self) -> bool:
        """Return True if the part could be read from the file. If it could not, that fault was
        already reported when the file was read.
        """
        if self.path:
            return self.path[0] not in self.node.unread
        return not self.node.unread or isinstance(self.node, Flow | PipelineModel)

    def sentence(self) -> str:
        """Return the text with the location in the file, if there is one."""
        location = self.node.location
        if location is None:
            return f"{dotted(self.path)}: {self.text}" if self.path else self.text
        at = location.at(*self.path)
        what = dotted((*location.path, *self.path))
        return ": ".join(part for part in (at, what, self.text) if part)
