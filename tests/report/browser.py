"""A headless Chromium, spoken to over a pipe: no driver, no port, no network.

The protocol is https://chromedevtools.github.io/devtools-protocol/: JSON, each
message ended by a NUL, in on file descriptor 3, out on 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60.0


def find():
  """Where a browser is: what SPECDEC_BROWSER says, else on PATH, or None."""
  named = os.environ.get("SPECDEC_BROWSER")
  return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
  """One browser with one page, of which all that happens is noted."""

  def __init__(self, path, profile):
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    # The browser finds its ends at 3 and 4, wherever they are here.
    script = f'exec "$@" 3<&{read_in} 4>&{write_out}'
    self._process = subprocess.Popen(
      [
        *("bash", "-c", script, "browser", path),
        "--headless",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "--no-sandbox",  # there is none for root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        "about:blank",
      ],
      pass_fds=(read_in, write_out),
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    os.close(read_in)
    os.close(write_out)
    self._in, self._out = write_in, read_out
    self._data, self._count, self._session = b"", 0, None
    self.events = []
    target = self.call("Target.createTarget", url="about:blank")["targetId"]
    self._session = self.call(
      "Target.attachToTarget", targetId=target, flatten=True
    )["sessionId"]
    for domain in ("Page", "Network", "Log", "Runtime", "Audits"):
      self.call(f"{domain}.enable")

  def close(self):
    os.close(self._in)
    os.close(self._out)
    self._process.terminate()
    self._process.wait(_SECONDS)

  def call(self, method, **params):
    """Calls a method; returns its result."""
    self._count += 1
    message = {"id": self._count, "method": method, "params": params}
    if self._session:
      message["sessionId"] = self._session
    os.write(self._in, json.dumps(message).encode() + b"\0")
    while True:
      got = self._next()
      if got.get("id") == self._count:
        assert "error" not in got, f"{method}: {got['error']}"
        return got["result"]
      self.events.append(got)

  def _next(self):
    end = time.monotonic() + _SECONDS
    while b"\0" not in self._data:
      ready, *_ = select.select([self._out], [], [], end - time.monotonic())
      assert ready, "the browser does not answer"
      data = os.read(self._out, 1 << 20)
      assert data, "the browser is gone"
      self._data += data
    message, self._data = self._data.split(b"\0", 1)
    return json.loads(message)

  def open(self, path, width=1280, height=900, dark=False):
    """Opens a file in a window of this width in CSS pixels."""
    self.resize(width, height)
    value = "dark" if dark else "light"
    features = [{"name": "prefers-color-scheme", "value": value}]
    self.call("Emulation.setEmulatedMedia", features=features)
    self.events.clear()
    self.call("Page.navigate", url=Path(path).resolve().as_uri())
    loaded = "Page.loadEventFired"
    while not any(event.get("method") == loaded for event in self.events):
      self.events.append(self._next())

  def resize(self, width, height=900):
    self.call(
      "Emulation.setDeviceMetricsOverride",
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=False,
    )

  def run(self, script):
    """The value of an expression in the page."""
    result = self.call(
      "Runtime.evaluate",
      expression=script,
      returnByValue=True,
      awaitPromise=True,
    )
    assert "exceptionDetails" not in result, result
    return result["result"].get("value")

  def press(self, key):
    for kind in ("keyDown", "keyUp"):
      self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

  def point(self, x, y):
    self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

  def screenshot(self, path, whole=False):
    shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
    Path(path).write_bytes(base64.b64decode(shot["data"]))

  def events_of(self, *methods):
    return [event for event in self.events if event.get("method") in methods]
