"""`sparrow serve`: the flags are derived from the declared options and read by argparse (Typer
would cost a third of the start).
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

from sparrow.base.settings import BOOLEAN, options_of
from sparrow.server.cluster_settings import check_flags
from sparrow.server.config import CONFIG_FLAG, CONFIG_VARIABLE, DEFAULT_FILE, ServerConfig, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.settings import Option

DESCRIPTION = "Run a broker in the foreground until SIGTERM or Ctrl-C, which drain it."
EPILOG = (
    f"A value comes from the flag, else the environment variable, else the file ({CONFIG_FLAG} or "
    f"{CONFIG_VARIABLE},"
    f" else {DEFAULT_FILE} in the working directory), else the default. Tokens and topics are set "
    "in the file; see"
    " docs/configuration.md."
)


def serve(arguments: Sequence[str]) -> int:
    """Run the server and return the exit code."""
    import httptools  # noqa: F401 - the thin install lacks it: say so before anything is made

    # Modules are no garbage: looking for some while they are loaded takes a tenth of the start.
    gc.disable()
    flags = {name: value for name, value in vars(parser().parse_args(arguments)).items() if value is not None}
    check_flags(flags)
    config, resolved = load(flags, os.environ)
    from sparrow.server.logs import configure_logging

    configure_logging(config.log_level, config.log_format, sys.stderr)
    for warning in resolved.warnings:
        logging.getLogger("sparrow.server").warning(warning)
    from sparrow.server.run import run

    # kio offers strategies for hypothesis where that is installed, as in test environments; a
    # broker does not need them (2 s).
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # makes its import fail
    run(config, lambda: load(flags, os.environ)[0], resolved.sources)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags of `serve`; every value arrives as text, the options check
    it.
    """
    made = argparse.ArgumentParser(
        "sparrow serve", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False
    )
    made.add_argument(CONFIG_FLAG, metavar="PATH", help=f"YAML file with options [{CONFIG_VARIABLE}]")
    for each in options_of(ServerConfig):
        if each.flag:
            _add_flag(made, each)
    return made


def _add_flag(made: argparse.ArgumentParser, each: Option) -> None:
    text = f"{each.help} (default: {each.show}) [{each.environment}]".replace("%", "%%")
    action = "append" if each.kind.repeats else "store"
    metavar = each.kind.name if "|" in each.kind.name else each.kind.name.upper()
    if each.kind is BOOLEAN:  # the bare flag means true
        made.add_argument(each.flag, dest=each.name, metavar=metavar, nargs="?", const="true", help=text)
        return
    made.add_argument(each.flag, dest=each.name, metavar=metavar, action=action, help=text)
