"""Where ``kafka-async`` starts: Ctrl-C ends it without a traceback from here on.

Nothing that takes time is imported: what comes before ``main`` is Python's, tracebacks included. The rest of the start is in
``launch.py``.
"""

import os
import signal
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


def main() -> None:
    """Run the command line. Raises ``SystemExit``: 0, 1 after an error, 2 for wrong usage or a missing extra, 130 after Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job of a shell ignores Ctrl-C, and so do we
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        from .launch import launch

        launch()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        let_interrupts_raise()


def _end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process. An exception in the middle of an import can be swallowed, or leave a lock that another import waits for."""
    os._exit(INTERRUPTED)


def let_interrupts_raise() -> None:
    """Have Ctrl-C raise ``KeyboardInterrupt`` again, which an event loop needs to bring its own handler."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
