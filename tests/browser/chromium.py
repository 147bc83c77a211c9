"""A real Chromium without a window, driven through the pipe of its own protocol (CDP): nothing else can connect to it.

Source: https://chromedevtools.github.io/devtools-protocol/ (`--remote-debugging-pipe`: commands at descriptor 3,
answers and events at 4, each a JSON text that ends with NUL).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_WAIT_S = 60.0
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
_BUTTONS = {"Tab": 9, "Enter": 13}
FOCUS = "((e) => e.getAttribute('aria-label') || e.textContent)(document.activeElement)"
"""The name of the element that has the focus."""


class Page:
    """One page. `ran`: what its scripts passed to `ran(...)`; `complaints`: errors that its console has."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest, self._number, self._session = b"", 0, ""
        self._events: list[Any] = []
        self.ran: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for name in ("Page", "Runtime", "Log"):
            self.send(f"{name}.enable")
        self.send("Runtime.addBinding", name="ran")

    def send(self, method: str, **parameters: Any) -> Any:
        """A command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._read_until(lambda found: found.get("id") == message["id"])
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, url: str) -> None:
        """Go there, until its files are loaded."""
        self.ran.clear()
        self.complaints.clear()
        self._wait_for_load(lambda: self.send("Page.navigate", url=url))

    def press(self, key: str, *, loads: bool = False) -> None:
        """A key, and with `loads` until the next page is there."""
        if loads:
            self._wait_for_load(lambda: self.press(key))
            return
        code: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _BUTTONS[key]}
        if key == "Enter":
            code["text"] = "\r"
        self.send("Input.dispatchKeyEvent", type="keyDown", **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; that of its promise."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def look_like(self, width: int, theme: str) -> None:
        """The width of the window, and `light` or `dark`."""
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def save_picture(self, path: Path) -> None:
        """The whole page as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _wait_for_load(self, begin: Callable[[], Any]) -> None:
        self._events.clear()
        begin()
        if not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._read_until(lambda found: found.get("method") == "Page.loadEventFired")
        self.evaluate("new Promise((done) => setTimeout(done, 50))")  # what onerror and the like still do

    def _read_until(self, is_wanted: Callable[[Any], bool]) -> Any:
        until = time.monotonic() + _WAIT_S
        while True:
            while b"\0" in self._rest:
                text, _, self._rest = self._rest.partition(b"\0")
                found = json.loads(text)
                self._note(found)
                if is_wanted(found):
                    return found
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            piece = os.read(self._answers, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece

    def _note(self, found: Any) -> None:
        parameters = found.get("params", {})
        match found.get("method"):
            case None:
                return
            case "Runtime.bindingCalled":
                self.ran.append(parameters["payload"])
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
        self._events.append(found)


def press_until(page: Page, name: str) -> None:
    """Go on with Tab to the element of this name."""
    page.evaluate("document.activeElement.blur()")
    for _ in range(200):
        page.press("Tab")
        if page.evaluate(FOCUS) == name:
            return
    pytest.fail(f"Tab does not reach {name}")


@contextmanager
def open_chromium(profile: Path) -> Iterator[Page]:
    """A browser with an empty page until the block ends."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("no chromium: apt-get install chromium")
    its_commands, commands = os.pipe()
    answers, its_answers = os.pipe()
    script = f'exec "$0" "$@" 3<&{its_commands} 4>&{its_answers}'
    process = subprocess.Popen(
        ["bash", "-c", script, program, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(its_commands, its_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_commands)
    os.close(its_answers)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # it ends when its pipe does
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
