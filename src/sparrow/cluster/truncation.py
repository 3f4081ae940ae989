"""Truncation of a log: its end moves back. The runs stay as they are; an entry says what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.cluster.log_entries import ENTRY_VERSION, STATE_KIND, Cut, StateEntry, log_key, log_row
from sparrow.cluster.pieces import Piece, cut_run

if TYPE_CHECKING:
    from sparrow.cluster.log_content import LogContent


async def truncate(content: LogContent, offset: int) -> None:
    """Drop every batch that contains `offset` or comes after it. The caller lets nothing else
    append to the log or rewrite it meanwhile.

    Raises:
        all that reading a piece and committing raise; nothing has changed then.
    """
    await content.resources.committer.settled()
    if offset >= content.end:
        return
    number = content.pieces.number_at(offset)
    piece = content.pieces[number]
    cut = await _cut_of(content, piece, offset)
    entry = content.changed_entry(
        end=cut.end, start=min(content.start, cut.end), cuts=[*content.state.entry.cuts, cut]
    )
    deletes = [(STATE_KIND, log_key(entry))] if content.state.saved.offset > cut.end else []
    await content.resources.write([log_row(entry)], deletes)
    content.state.entry = entry
    if deletes:
        content.state.saved = StateEntry(ENTRY_VERSION, 0, b"")
    gone = content.pieces.drop_last(number)
    if cut.length:
        content.pieces.append(Piece(cut_run(piece.run, cut), piece.payload))
        del gone[0]
    content.release(gone)
    content.end = content.next = cut.end
    content.start = min(content.start, cut.end)
    content.unsaved_bytes = content.pieces.bytes_after(content.state.saved.offset)


async def _cut_of(content: LogContent, piece: Piece, offset: int) -> Cut:
    data = await content.reader.read(piece)
    end, length, max_timestamp = piece.base, 0, -1
    for header, position in content.reader.walk(piece, data):
        if header.next_offset > offset:
            break
        end, length = header.next_offset, position + header.size_bytes
        max_timestamp = max(max_timestamp, header.max_timestamp)
    return Cut(content.resources.committer.seq, end, length, max_timestamp)
