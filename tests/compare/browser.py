"""Debian's chromium without a window, spoken to over pipes: the DevTools protocol, no packages."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Chromium reads its commands from descriptor 3 and answers on 4.
START = "import os, sys; r, w = map(int, sys.argv[1:3]); os.dup2(r, 3); os.dup2(w, 4); "
START += "os.execv(sys.argv[3], sys.argv[3:])"


def found() -> str | None:
    """The path of a browser on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in one browser; `events` holds all that the page reported."""

    def __init__(self, program: str, profile: Path) -> None:
        down, up = os.pipe(), os.pipe()
        # out of the way of 3 and 4
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (down[0], up[1])]
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        flags += ["--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, theirs), program, *flags],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (*theirs, down[0], up[1]):
            os.close(fd)
        self.write, self.read = down[1], up[0]
        self.rest, self.count = b"", 0
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self.write)  # chromium ends when its pipe does
        os.close(self.read)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self.count:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read, 1 << 20)
            assert part, "the browser has gone"
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._next(60)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def size(self, width: int, height: int = 900, dark: bool = False, scale: float = 1) -> None:
        """How large the window is, and whether the system prefers dark."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release one key where the focus is."""
        what: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **what)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **what)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, violations of the policy."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded":
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, data within the page left out."""
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [e["params"]["request"]["url"] for e in sent]
        return [url for url in urls if not url.startswith("data:")]
