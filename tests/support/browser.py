"""A headless Chromium, as installed on the machine, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from tests.support import services

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def browser_page(*, width: int = 1500, height: int = 1050) -> Iterator[Page]:
    """A page of a new browser; the test is skipped, or fails where services are required, without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    services.require(chromium is not None, "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_QUIET))
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()
