"""A headless Chromium, as installed on the machine, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

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
def _browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    services.require(chromium is not None, "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page(*, width: int = 1500, height: int = 1050) -> Iterator[Page]:
    """A page of a new browser; the test is skipped, or fails where services are required, without Chromium."""
    with _browser() as browser:
        yield browser.new_page(viewport={"width": width, "height": height})


@contextmanager
def recording_page(har: Path) -> Iterator[Page]:
    """A page whose network traffic is in the file `har` when it is closed."""
    with _browser() as browser:
        context = browser.new_context(record_har_path=har, record_har_content="embed")
        yield context.new_page()
        context.close()
