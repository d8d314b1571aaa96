"""A real Chromium without a screen, driven by its own debugging protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.report.reading import BROWSER, QUIET

KEYS = {" ": ("Space", 32), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39), "End": ("End", 35)}
KEYS |= {"Home": ("Home", 36), "Tab": ("Tab", 9), "+": ("Equal", 187)}


class Browser:
    """One page at a time. `complaints` are what the page wrote to its console, and what it failed to do."""

    def __init__(self, profile: Path) -> None:
        here, theirs_out = os.pipe()
        theirs_in, there = os.pipe()
        options = f"--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe {QUIET}"
        command = f'exec "{BROWSER}" {options} --user-data-dir="{profile}" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": "/dev/null"},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._write = os.fdopen(here, "rb"), os.fdopen(there, "wb")
        self._count, self._session = 0, ""
        self.complaints: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer; events that come before it are taken note of."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while (letter := self._read.read(1)) != b"\0":
            assert letter, "the browser has left"
            data += letter
        message = json.loads(data)
        self._note(message)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(about))
        elif method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.complaints.append(f"asked for {about['request']['url']}")

    def open(self, path: Path, width: int = 1000, height: int = 900, dark: bool = False) -> None:
        """Show a page, as wide as that."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not self._loaded:
            self._next()

    def run(self, script: str) -> Any:
        """The value of a script."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code, number = KEYS[key]
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        typed = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A picture of what it shows, or of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        self._write.write(json.dumps({"id": 10**6, "method": "Browser.close"}).encode() + b"\0")
        self._write.flush()
        self._process.wait(timeout=20)
        self._read.close()
        self._write.close()
