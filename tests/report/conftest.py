"""One browser for all tests that look at pages."""

import pytest

from tests.report import browser as browsers


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
  path = browsers.find()
  if path is None:
    pytest.skip(
      f"no browser: expected one of {', '.join(browsers.NAMES)} on PATH, or "
      "its path in SPECDEC_BROWSER"
    )
  found = browsers.Browser(path, tmp_path_factory.mktemp("profile"))
  yield found
  found.close()
