"""Headless Chromium, driven by the WebDriver protocol: what a page does, and how it looks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WHY_NOT = "chromium or chromedriver is not installed: apt-get install chromium chromium-driver"
DISABLED = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
FLAGS = ("--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{one}" for one in DISABLED))
PHONE, WIDE = 360, 1280


class Browser:
    """One page at a time. Everything that it logged and asked the network for is kept by Chromium until it is read."""

    def __init__(self, url: str, session: str) -> None:
        self._url = f"{url}/session/{session}"

    def open(self, page: Path | str, *, width: int = WIDE, scheme: str = "light", media: str = "screen") -> None:
        """As on a screen of that width, with that colour scheme: a file, or an address."""
        self.told()
        phone = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._cdp("Emulation.setDeviceMetricsOverride", phone)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._cdp("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self._post("url", {"url": page if isinstance(page, str) else page.as_uri()})

    def run(self, script: str) -> Any:
        """What a script gives back."""
        return self._post("execute/sync", {"script": script, "args": []})

    def told(self) -> list[str]:
        """What was written to the console since the last time."""
        return [entry["message"] for entry in self._log("browser")]

    def requested(self) -> list[str]:
        """Addresses that were asked for since the last time."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if url.startswith(("http", "ws", "ftp", "file"))]

    def shot(self, path: Path, *, height: int | None = None) -> None:
        """The whole page, or its first `height` pixels, as a PNG."""
        size = self._cdp("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = self._cdp("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self._cdp("Page.printToPDF", {})["data"])

    def _cdp(self, command: str, params: dict[str, Any]) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": params})

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return list(self._post("se/log", {"type": kind}))

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _asked(f"{self._url}/{path}", body)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Starts one with a profile of its own, and ends it with all its processes."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    driver = subprocess.Popen([DRIVER, "--port=0"], start_new_session=True, **pipes)
    try:
        url = f"http://127.0.0.1:{_port(driver)}"
        session = _asked(f"{url}/session", {"capabilities": {"alwaysMatch": _capabilities(profile)}})["sessionId"]
        try:
            yield Browser(url, session)
        finally:
            _asked(f"{url}/session/{session}", None, method="DELETE")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()


def _capabilities(profile: Path) -> dict[str, Any]:
    options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
    return {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip(".\n").rsplit(" ", 1)[1])
    raise RuntimeError("expected a port, got nothing: chromedriver ended")


def _asked(url: str, body: dict[str, Any] | None, *, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.loads(answer.read())["value"]
