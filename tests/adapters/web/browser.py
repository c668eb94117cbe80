"""A Chromium without a window, driven over standard input and output: a line of JSON each way.

``{"load": URL}`` loads a page, ``{"run": CODE}`` returns what JavaScript returns, ``{"report": true}`` what was asked, and
what the console says. The engine is that of PyQt6-WebEngine, because a wheel brings it; the test is skipped where it is missing.
"""

import importlib
import json
import os
import sys
from typing import Any, Final

FLAGS: Final = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
PATIENCE_MS: Final = 5000


def main() -> None:
    """Obey until there is no more input."""
    os.environ |= {"QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_CHROMIUM_FLAGS": FLAGS}
    core: Any = importlib.import_module("PyQt6.QtCore")
    widgets: Any = importlib.import_module("PyQt6.QtWidgets")
    engine: Any = importlib.import_module("PyQt6.QtWebEngineCore")
    view_of: Any = importlib.import_module("PyQt6.QtWebEngineWidgets")
    app = widgets.QApplication(sys.argv)
    asked: list[str] = []
    console: list[str] = []

    def intercept(_self: Any, info: Any) -> None:
        asked.append(info.requestUrl().toString())

    def say(_self: Any, _level: Any, message: str, *_: Any) -> None:
        console.append(message)

    profile = engine.QWebEngineProfile()
    watcher = type("Watcher", (engine.QWebEngineUrlRequestInterceptor,), {"interceptRequest": intercept})()
    profile.setUrlRequestInterceptor(watcher)
    page = type("Page", (engine.QWebEnginePage,), {"javaScriptConsoleMessage": say})(profile)
    view = view_of.QWebEngineView()
    view.setPage(page)
    view.resize(1200, 800)
    view.show()

    def until(begin: Any) -> Any:
        """Run the event loop until ``begin`` has called what it is given."""
        loop, found = core.QEventLoop(), []

        def end(value: Any = None) -> None:
            found.append(value)
            loop.quit()

        begin(end)
        core.QTimer.singleShot(PATIENCE_MS, loop.quit)
        loop.exec()
        return found[0] if found else None

    def load(end: Any) -> None:
        page.loadFinished.connect(end)
        page.load(core.QUrl(wanted["load"]))

    for line in sys.stdin:
        wanted = json.loads(line)
        if "load" in wanted:
            answer = until(load)
            page.loadFinished.disconnect()
        elif "run" in wanted:
            answer = until(lambda end, code=wanted["run"]: page.runJavaScript(code, end))
        else:
            answer = {"asked": asked, "console": console}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        app.processEvents()
    os._exit(0)  # Qt complains about the order in which its objects go


if __name__ == "__main__":
    main()
