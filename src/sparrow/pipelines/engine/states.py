"""State of a flow beside Spark's checkpoint, in the same directory: a file `sparrow.json`.

    id        identifies this flow's batches in sinks that are committed outside Spark;
              a new checkpoint has a new one
    schemas   schemas inferred from a sample, so that a restart decodes as the run before it

Deleting the checkpoint deletes it too, so both start over together. The directory may be a URI of
any file system that Arrow supports.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from sparrow.base.errors import StorageFailed

_FILE: Final = "sparrow.json"


@dataclass(frozen=True)
class FlowState:
    """Stored state of one flow."""

    id: str
    schemas: dict[str, str] = field(default_factory=dict)

    def with_schema(self, name: str, ddl: str) -> FlowState:
        """Return the state with one more schema."""
        return replace(self, schemas={**self.schemas, name: ddl})


def load_state(directory: str) -> FlowState:
    """Load the state from the checkpoint's directory, or create and store a new one.

    Raises:
        StorageFailed: the directory cannot be read or written.
    """
    try:
        system, path = _file(directory)
        if system.get_file_info(path).type == fs.FileType.NotFound:
            state = FlowState(uuid.uuid4().hex)
            save_state(directory, state)
            return state
        with system.open_input_stream(path) as file:
            found: dict[str, Any] = json.loads(file.read())
        return FlowState(str(found["id"]), dict(found["schemas"]))
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise StorageFailed(f"the checkpoint {directory} cannot be used: {error}") from None


def save_state(directory: str, state: FlowState) -> None:
    """Store the state atomically: write a new file, then rename it.

    Raises:
        StorageFailed: the directory cannot be written.
    """
    try:
        system, path = _file(directory)
        system.create_dir(path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(f"{path}.new") as file:
            file.write(json.dumps({"id": state.id, "schemas": state.schemas}, indent=1).encode())
        system.move(f"{path}.new", path)
    except (OSError, pa.ArrowException) as error:
        raise StorageFailed(f"the checkpoint {directory} cannot be written: {error}") from None


def newest_batch(directory: str) -> int | None:
    """Return the newest batch that a query has begun with this checkpoint, or None if there is none
    or the directory cannot be read from here.
    """
    try:
        system, path = _file(directory)
        offsets = f"{path.rpartition('/')[0]}/offsets"
        if system.get_file_info(offsets).type != fs.FileType.Directory:
            return None
        found = system.get_file_info(fs.FileSelector(offsets))
    except (OSError, pa.ArrowException):
        return None
    return max((int(each.base_name) for each in found if each.base_name.isdecimal()), default=None)


def _file(directory: str) -> tuple[Any, str]:
    if "://" in directory or directory.startswith("file:"):
        system, path = fs.FileSystem.from_uri(directory)
    else:
        system, path = fs.LocalFileSystem(), directory
    return system, f"{path.rstrip('/')}/{_FILE}"
