"""A browser for pages, and what TensorBoard reads."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser, where there is one."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver; on Debian: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


@contextmanager
def opened(browser: Chrome, path: Path) -> Iterator[None]:
    """A page, opened anew; whatever a test does with it, it logs no error and asks the network for nothing."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(1200))
    log(browser, "performance")
    browser.get(path.as_uri())
    yield
    assert log(browser, "browser") == []
    assert [url for url in requested(browser) if not url.startswith("data:")] == [path.as_uri()]


def requested(browser: Chrome) -> list[str]:
    """The addresses that the browser has asked for since this was asked last."""
    messages = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    return [of["params"]["request"]["url"] for of in messages if of["method"] == "Network.requestWillBeSent"]


def log(page: Chrome, kind: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = page.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


def screen(width: int) -> dict[str, Any]:
    return {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}


def colour(page: Chrome, what: str, part: str) -> tuple[int, ...]:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]].match(/[0-9]+/g).map(Number)"
    red_green_blue: list[int] = page.execute_script(script, what, part)
    return tuple(red_green_blue[:3])


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """As WCAG 2.2 has it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: tuple[int, ...]) -> float:
    parts = [part / 255 for part in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def scalars_of(folder: Path) -> tuple[dict[tuple[str, int], float], dict[str, str]]:
    """Scalars by tag and step, and texts by tag, as TensorBoard reads them."""
    scalars: dict[tuple[str, int], float] = {}
    texts: dict[str, str] = {}
    for event in _events_in(folder):
        for value in event.summary.value:
            if value.HasField("tensor"):
                texts[value.tag] = value.tensor.string_val[0].decode()
            else:
                scalars[value.tag, event.step] = value.simple_value
    return scalars, texts


def _events_in(folder: Path) -> Iterator[Event]:
    (file,) = folder.iterdir()
    reader = PyRecordReader_New(str(file))
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return
        yield Event.FromString(reader.record())
