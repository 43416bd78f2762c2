"""Modules of functions, imported for what their @function decorators register."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Final

from tocsin.cli.failures import EXIT_INPUT, Failure

OURS: Final = str(Path(__file__).parents[1]) + os.sep


def import_functions(name: str) -> None:
    """Import the module. Raises Failure with the error of the module and where it is."""
    from tocsin.client.functions import registry

    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: a module of the working directory can be named
    before = len(registry)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Failure(f"--functions {name}: {_what_and_where(error)}", exit_code=EXIT_INPUT) from None
        raise Failure(f"--functions {name}: {error}", exit_code=EXIT_INPUT) from None
    # Whatever a module of theirs raises is theirs to see, without our frames; one that exits must not end us in silence.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise Failure(f"--functions {name}: {_what_and_where(error)}", exit_code=EXIT_INPUT) from None
    if len(registry) == before and not _registers(module.__name__):
        print(
            f"--functions {name}: registers no function; mark them with @function, from tocsin.client",
            file=sys.stderr,
            flush=True,
        )


def _registers(module: str) -> bool:
    """Whether it registered some before: it may have been imported by another module that was named."""
    from tocsin.client.functions import registry

    found = [registry.get(each) for each in registry]
    return any(each is not None and each.call.__module__ == module for each in found)


def _what_and_where(error: BaseException) -> str:
    """`TypeError: message (module.py:9)`: the last line outside the machinery of imports and of Tocsin."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text  # its text ends with the place
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((OURS, "<frozen importlib"))]
    theirs = [f for f in theirs if f.filename != importlib.__file__]
    return f"{text} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else text
