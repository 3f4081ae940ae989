"""The parameters of a task's function, and their encoding as a JSON object.

The parameters become the fields of a msgspec Struct, so that encoding, decoding and the check of
types are one compiled pass each. Parameters with a default are left out if they are not given: the
worker's version of the function then decides the default. Unknown names are refused: arguments of
another version of a task are a clear error.

Types are those that msgspec knows (numbers, text, dates, dataclasses, Structs, TypedDicts, enums,
unions, …) and pydantic's models, if pydantic is installed. Annotations are resolved at the first
use, not at the declaration, because a module may define types after the task that has them.
"""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.client.blocking_jobs import BlockingJob
from sparrow.client.job import Job, LeasedRecord
from sparrow.tasks.errors import ArgumentsMisfit, TaskError, UnencodableResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_JOB_TYPES: Final = (Job, BlockingJob, LeasedRecord)
_JOB_NAME: Final = "job"


def encode_other(value: object) -> object:
    """Return a value that msgspec does not know as one that it knows: pydantic's models.

    Raises:
        NotImplementedError: another type.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def decode_other(kind: Any, value: object) -> object:
    """Return a value of a type that msgspec does not know: pydantic's models.

    Raises:
        NotImplementedError: another type. ValueError: it does not fit.
    """
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise NotImplementedError(f"{kind!r} cannot be read from JSON")


ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_other)


class Signature:
    """The parameters of a function that are arguments, and the one that gets the job."""

    def __init__(self, function: Callable[..., object], task: str) -> None:
        """Read the parameters; the types are resolved later.

        Raises:
            TypeError: parameters that cannot be sent.
        """
        self._function = function
        self._task = task
        self.job_parameter: str | None = None
        """Name of the parameter that gets the job."""
        self._job_is_positional = False
        self._parameters = inspect.signature(function).parameters
        self.positional: list[str] = []
        """Names of arguments that may be given by position, in order."""
        self._plain: list[inspect.Parameter] = []
        self._struct: Any = None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._types: Mapping[str, Any] = {}
        for index, (name, each) in enumerate(self._parameters.items()):
            if _is_job(each):
                self.job_parameter = name
                self._job_is_positional = index == 0 and each.kind is not each.KEYWORD_ONLY
                continue
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise TypeError(
                    f"the task {task!r} has the parameter {each}; arguments are sent by name and checked by "
                    "type, so write each parameter, or one of type list or dict"
                )
            self._plain.append(each)
            if each.kind is not each.KEYWORD_ONLY:
                self.positional.append(name)
        self.names = [each.name for each in self._plain]
        self._name_set = frozenset(self.names)
        self._required = frozenset(each.name for each in self._plain if each.default is each.empty)
        self._positional_only = {each.name for each in self._plain if each.kind is each.POSITIONAL_ONLY}
        # Arguments are passed by position up to here, if no default is used before it.
        self._by_position = len(self.positional)

    @property
    def _bad(self) -> str:
        return f"the arguments of the task {self._task!r} do not fit"

    def resolve(self) -> None:
        """Resolve the annotations.

        Raises:
            TaskError: one cannot be resolved, or is a type that JSON cannot carry.
        """
        if self._decoder is not None:
            return
        target: Any = inspect.unwrap(self._function)
        try:
            hints = typing.get_type_hints(target, include_extras=True)
        except Exception as error:
            raise TaskError(
                f"the annotations of the task {self._task!r} cannot be read: {error}; import the types that "
                "they name where the program runs, not only under TYPE_CHECKING"
            ) from error
        self._types = hints
        fields: list[Any] = []
        for each in self._plain:
            kind = hints.get(each.name, Any)
            if each.name in self._required:
                fields.append((each.name, kind))
            else:
                fields.append(
                    (each.name, kind | msgspec.UnsetType if kind is not Any else kind, msgspec.UNSET)
                )
        try:
            self._struct = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False
            )
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=decode_other)
        except TypeError as error:
            raise TaskError(f"the parameters of the task {self._task!r} cannot be sent: {error}") from error
        self._returns = hints.get("return", Any)

    @property
    def returns(self) -> Any:
        """The annotated type of the result; Any without one."""
        self.resolve()
        return self._returns

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the arguments as JSON.

        Raises:
            ArgumentsMisfit: an argument is missing, unknown, given twice, or of another type.
        """
        if self._decoder is None:
            self.resolve()
        assert self._decoder is not None
        given = self._bound(args, kwargs) if args else kwargs
        try:
            encoded = ENCODER.encode(self._struct(**given))
        except (TypeError, NotImplementedError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise self._misfit(given, error) from None
        try:
            self._decoder.decode(encoded)
        except msgspec.MsgspecError as error:
            raise ArgumentsMisfit(f"{self._bad}: {error}") from None
        return encoded

    def encode_without(self, fill: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the arguments of a step of a composition as JSON; the parameter `fill` gets the
        results of the parents.

        Raises:
            ArgumentsMisfit: as `encode`.
        """
        if fill is None:
            return self.encode(args, kwargs)
        self.resolve()
        given = self._bound((None, *args), kwargs)
        del given[fill]
        unknown = given.keys() - self._name_set
        missing = self._required - given.keys() - {fill}
        if unknown or missing:
            raise self._misfit({**given, fill: None}, TypeError("they cannot be bound"))
        encoded: dict[str, msgspec.Raw] = {}
        for name, value in given.items():
            try:
                raw = ENCODER.encode(value)
                msgspec.json.decode(raw, type=self._types.get(name, Any), dec_hook=decode_other)
            except (TypeError, NotImplementedError, ValueError, msgspec.MsgspecError) as error:
                raise ArgumentsMisfit(f"{self._bad}: {name}: {error}") from None
            encoded[name] = msgspec.Raw(raw)
        return ENCODER.encode(encoded)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.positional):
            raise ArgumentsMisfit(
                f"{self._bad}: {len(args)} are given by position, it takes {len(self.positional)}: "
                f"{self._task}{self.shown}"
            )
        given = dict(zip(self.positional, args, strict=False))
        twice = given.keys() & kwargs.keys()
        if twice:
            raise ArgumentsMisfit(f"{self._bad}: {min(twice)!r} is given twice")
        return {**given, **kwargs}

    def _misfit(self, given: Mapping[str, Any], error: Exception) -> ArgumentsMisfit:
        unknown = sorted(given.keys() - self._name_set)
        missing = [name for name in self.names if name in self._required and name not in given]
        if unknown:
            reason = f"it has no parameter {unknown[0]!r}"
        elif missing:
            reason = f"{missing[0]!r} is missing"
        else:
            reason = str(error)
        return ArgumentsMisfit(f"{self._bad}: {reason}; it is {self._task}{self.shown}")

    @property
    def shown(self) -> str:
        """The parameters for people, "(to: str, body: str)"."""
        parts = [str(each) for each in self._plain]
        return f"({', '.join(part.replace(chr(39), '') for part in parts)})"

    # ── running ───────────────────────────────────────────────────────────────────────────────────

    def decode(self, value: bytes | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a message, by position and by name, without the job.

        Raises:
            ArgumentsMisfit: they do not fit.
        """
        if self._decoder is None:
            self.resolve()
        assert self._decoder is not None
        try:
            found = self._decoder.decode(value or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArgumentsMisfit(f"{self._bad}: {error}; it is {self._task}{self.shown}") from None
        values = msgspec.structs.astuple(found)
        if msgspec.UNSET in values:
            named = {
                name: value
                for name, value in zip(self.names, values, strict=True)
                if value is not msgspec.UNSET
            }
            before = tuple(
                named.pop(name) for name in self.positional if name in self._positional_only and name in named
            )
            return before, named
        count = self._by_position
        return values[:count], dict(zip(self.names[count:], values[count:], strict=True))

    def call(self, job: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with the job, if it wants it."""
        if self.job_parameter is not None:
            if self._job_is_positional:
                args = (job, *args)
            else:
                kwargs[self.job_parameter] = job
        return self._function(*args, **kwargs)


def result_as_json(task: str, value: object) -> bytes:
    """Return a result as JSON.

    Raises:
        UnencodableResult: JSON cannot carry it.
    """
    try:
        return ENCODER.encode(value)
    except (
        TypeError,
        NotImplementedError,
        ValueError,
        OverflowError,
        RecursionError,
        msgspec.MsgspecError,
    ) as error:
        raise UnencodableResult(
            f"the result of the task {task!r} cannot be kept: it returned {type(value).__name__}, and "
            f"{error}; return numbers, text, lists, dicts, dataclasses, Structs or pydantic models"
        ) from None


def _is_job(parameter: inspect.Parameter) -> bool:
    """Return True for a parameter that gets the job: its annotation is one of the job classes."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return False
    if isinstance(annotation, str):
        last = annotation.strip().strip("'\"").replace(" | None", "").rpartition(".")[2]
        return last in {"Job", "TaskJob", "BlockingJob"} and (
            parameter.name == _JOB_NAME or "." in annotation or last == "TaskJob"
        )
    return isinstance(annotation, type) and issubclass(annotation, _JOB_TYPES)
