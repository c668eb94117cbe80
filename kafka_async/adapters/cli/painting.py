"""A terminal that shows pages, and is left as it was."""

import asyncio
import contextlib
import io
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define, field
from rich.console import Console
from rich.text import Text

from .keys import KeyReader

_ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = b"\x1b[?25h\x1b[?1049l"
_USUAL: Final = os.terminal_size((80, 24))
_PATIENCE: Final = 0.05
"""Seconds in which the rest of a sequence of bytes comes, if there is one."""


def can_paint() -> bool:
    """Return whether there are a terminal to draw on, and keys."""
    return sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@define(eq=False)
class Painter:
    """Draws pages. Get one from ``painting``."""

    changed: Callable[[], None]
    """Is called if the page must be drawn again."""
    pressed: Callable[[str], None]
    """Gets the keys; an empty one: there will be no more."""
    _before: list[Any] = field(factory=list, init=False)
    _reader: KeyReader = field(factory=KeyReader, init=False)
    _flushing: asyncio.TimerHandle | None = field(default=None, init=False)
    _shown: bool = field(default=False, init=False)

    def size(self) -> tuple[int, int]:
        """Return columns and lines; those of a usual terminal if this one does not know: a serial line, a container's at first."""
        found = os.get_terminal_size(sys.stdout.fileno())
        return found.columns or _USUAL.columns, found.lines or _USUAL.lines

    def page(self, lines: Sequence[Text]) -> bytes:
        """Return what draws a page over the one before; nothing while the program is in the background."""
        if not self._shown:
            return b""
        width, _ = self.size()
        buffer = io.StringIO()
        console = Console(file=buffer, force_terminal=True, width=width + 1, highlight=False, markup=False, emoji=False)
        for place, line in enumerate(lines):
            console.print(line, end="", no_wrap=True, overflow="crop", crop=True, soft_wrap=True)
            buffer.write("\x1b[K" if place == len(lines) - 1 else "\x1b[K\r\n")
        return f"\x1b[H{buffer.getvalue()}\x1b[J".encode(sys.stdout.encoding or "utf-8", "backslashreplace")

    # --- modes -----------------------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Show the pages' own screen, and take keys as they come."""
        if self._shown or _in_background():
            return
        self._before = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno(), termios.TCSADRAIN)
        _write(_ENTER)
        self._shown = True

    def leave(self) -> None:
        """Show what was there before, in its modes."""
        if self._shown:
            self._shown = False
            _write(_LEAVE)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """Ctrl-Z: leave, stop, and come back when the shell says so."""
        self.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.resume()

    def resume(self) -> None:
        """The program runs again; if it has the terminal, it draws."""
        self.enter()
        self.changed()

    # --- keys ------------------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Take the keys that have come."""
        try:
            data = os.read(sys.stdin.fileno(), 1024)
        except OSError:
            data = b""
        if self._flushing is not None:
            self._flushing.cancel()
        if not data:
            self.pressed("")
            return
        for key in self._reader.feed(data):
            self.pressed(key)
        if self._reader.waiting:
            self._flushing = asyncio.get_running_loop().call_later(_PATIENCE, self._flush)

    def _flush(self) -> None:
        for key in self._reader.flush():
            self.pressed(key)


@asynccontextmanager
async def painting(changed: Callable[[], None], pressed: Callable[[str], None]) -> AsyncGenerator[Painter, None]:
    """Yield what draws on the terminal, until the block is left, in whatever way."""
    painter = Painter(changed, pressed)
    loop = asyncio.get_running_loop()
    handled = {signal.SIGTSTP: painter.suspend, signal.SIGCONT: painter.resume, signal.SIGWINCH: changed}
    try:
        painter.enter()
        for number, handler in handled.items():
            loop.add_signal_handler(number, handler)
        loop.add_reader(sys.stdin.fileno(), painter.read)
        yield painter
    finally:
        loop.remove_reader(sys.stdin.fileno())
        for number in handled:
            loop.remove_signal_handler(number)
        with contextlib.suppress(OSError, termios.error):  # the terminal has gone
            painter.leave()


def _in_background() -> bool:
    """Return whether another program has the terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except OSError:  # it does not control our session, as with ``su -c`` and ``setsid``: then it has no foreground for us
        return False


def _write(data: bytes) -> None:
    """Write a few bytes past all buffers: what draws pages waits in none."""
    os.write(sys.stdout.fileno(), data)
