"""The site of docs/: its navigation, its links, and what zensical builds of it, as a browser shows it."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.pages import RESULT
from benchmarks.reference import pages_for_models
from etlrun.system.errors import DOCS as ADDRESS
from tests.conftest import Once
from tests.golden import Says
from tests.links import DOCS, REPOSITORY, ROOT, anchors, links, pages
from tests.pages import chromium, requested, screen

KINDS = ["Start", "Tutorials", "How-to", "Reference", "Explanation"]


def navigation(items: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    for value in (value for item in items for value in item.values()):
        yield from [value] if isinstance(value, str) else navigation(value)


def nav() -> Any:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]


def test_each_page_is_in_the_navigation_once_and_linked_from_the_start_page() -> None:
    listed = list(navigation(nav()))
    there = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert sorted(listed) == there, "mkdocs.yml lists each page of docs/ once"
    assert [name for item in nav() for name in item] == KINDS
    linked = {str(link.path.relative_to(DOCS)) for link in links(DOCS / "index.md") if link.path and not link.anchor}
    assert {*there} - linked == {"index.md"}


def test_each_link_leads_to_a_file_of_the_repository_and_to_a_heading_of_it() -> None:
    found = [(link, link.path) for page in pages() for link in links(page)]
    assert len(found) > 100
    assert [str(link) for link, path in found if path is not None and not path.exists()] == []
    in_pages = [(link, path) for link, path in found if path is not None and path.suffix == ".md" and link.anchor]
    assert len(in_pages) > 20
    assert [str(link) for link, path in in_pages if link.anchor not in anchors(path)] == []


def test_links_to_other_servers_are_listed_and_encrypted() -> None:
    said = subprocess.run([sys.executable, "-m", "tests.links"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = [tuple(line.split("  ")) for line in said.stdout.splitlines()]
    assert ("https://arxiv.org/abs/1706.04599", "docs/trained.md") in listed
    assert [
        link for link, _ in listed if not link.startswith("https://") or link.startswith(REPOSITORY + "/blob/")
    ] == []


def test_pages_of_the_site_reach_files_beside_docs_by_their_address() -> None:
    """So that links work in the site, which has no such files, and on GitHub."""
    found = [link for page in DOCS.rglob("*.md") for link in links(page) if not link.target.startswith("https:")]
    assert [str(link) for link in found if link.path and not link.path.is_relative_to(DOCS)] == []


def test_each_page_that_code_and_configs_name_is_there() -> None:
    files = [file for kind in ("etlrun/**/*.py", "conf/**/*.yaml") for file in ROOT.glob(kind)]
    named = {name for file in files for name in re.findall(r"(?:docs|\{DOCS\})/([\w/]+\.md)", file.read_text("utf-8"))}
    assert {"extending.md", "training.md", "reference/stages.md"} <= named
    assert [name for name in sorted(named) if not (DOCS / name).is_file()] == []
    assert (f"{REPOSITORY}/blob/main/docs", DOCS.is_dir()) == (ADDRESS, True)


def test_the_list_for_language_models_has_each_page_with_its_first_sentence() -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    assert text == pages_for_models(), "python -m benchmarks.reference updates it"
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == KINDS
    named = re.findall(r"^- \[.+\]\(\S+/docs/(\S+\.md)\): \S.*[.?)]$", text, re.MULTILINE)
    assert named == list(navigation(nav()))


def test_pages_show_without_the_program_that_makes_the_site() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert "--8<--" not in text
    results = [found[1] for found in RESULT.finditer(text)]
    assert len(results) > 20
    assert [name for name in results if not (ROOT / name).is_file()] == []


def build(folder: Path, *more: str) -> tuple[int, str]:
    """Build a copy of the site in `folder`, with `more` at the end of its start page; the status and what it says."""
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    with (folder / "docs" / "index.md").open("a", encoding="utf-8") as file:
        file.writelines(f"\n\n{line}\n" for line in more)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from zensical.main import cli; cli()"
    words = [sys.executable, "-c", code, "build", "--strict"]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, re.sub(r"\x1b\[[\d;]*m", "", ended.stdout + ended.stderr)


@pytest.mark.needs("zensical")
def test_a_link_to_nowhere_ends_the_build(tmp_path: Path, says: Says) -> None:
    status, said = build(tmp_path, "[a](nowhere.md)", "[b](caches.md#no-such-heading)", "[c](../README.md)")
    assert (status, "3 issues found" in said) == (1, True), said
    places = re.findall(r"Warning: (.*)\n.*─\[ ([\w.]+):\d+:\d+ \]", said)
    says(sorted(places))


@pytest.fixture(scope="module")
def site(once: Once) -> Path:
    """The site as it is built."""

    def make(folder: Path) -> None:
        status, said = build(folder)
        assert (status, "No issues found" in said) == (0, True), said

    return once("site", make) / "site"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_: object) -> None:
        """Leave it out."""


@pytest.fixture
def served(site: Path) -> Iterator[tuple[Chrome, str]]:
    """A browser, and the address of the site on this machine."""
    with chromium() as browser, ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen(1200))
        try:
            yield browser, f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.needs("zensical")
def test_each_page_shows_and_asks_other_servers_for_nothing(served: tuple[Chrome, str]) -> None:
    browser, address = served
    for page in navigation(nav()):
        browser.get(f"{address}{page.removesuffix('.md').removesuffix('index')}")
        assert browser.find_elements(By.TAG_NAME, "h1"), page
        assert browser.find_elements(By.CSS_SELECTOR, ".md-nav--primary .md-nav__link--active, .md-tabs__item--active")
    assert [url for url in requested(browser) if not url.startswith((address, "data:"))] == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.needs("zensical")
def test_a_page_has_the_tables_of_its_results(site: Path) -> None:
    text = (site / "benchmarks" / "index.html").read_text(encoding="utf-8")
    results = RESULT.findall((DOCS / "benchmarks.md").read_text(encoding="utf-8"))
    assert text.count("<table>") >= len(results) > 30
    assert "github.com/etlrun/etlrun/blob/main/benchmarks/results" not in text


@pytest.mark.needs("zensical")
def test_a_word_is_found_and_its_page_opened(served: tuple[Chrome, str]) -> None:
    browser, address = served
    browser.get(address)
    browser.find_element(By.CSS_SELECTOR, ".md-search__button").click()
    wait = WebDriverWait(browser, 30)
    box = wait.until(lambda page: focused(page, page.switch_to.active_element))
    ActionChains(browser).send_keys("gradient_accumulation").perform()
    open_hit = (
        "const hit = [...arguments[0].querySelectorAll('a')].find(hit => hit.textContent.includes('trainer.fit'));"
    )
    open_hit += "if (hit) hit.click(); return hit !== undefined"
    wait.until(lambda page: page.execute_script(open_hit, box))
    wait.until(lambda page: page.current_url.startswith(f"{address}reference/stages/"))
    assert "gradient_accumulation_steps" in browser.find_element(By.TAG_NAME, "main").text


def focused(page: Chrome, element: Any) -> Any:
    """The shadow root of an element, once something in it has the focus."""
    code = "const root = arguments[0].shadowRoot; return root && root.activeElement ? root : null"
    return page.execute_script(code, element)


@pytest.mark.needs("zensical")
def test_colours_are_those_of_the_system_until_others_are_chosen(served: tuple[Chrome, str]) -> None:
    browser, address = served
    emulated = {"media": "", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    browser.get(address)
    assert scheme(browser) == "slate"
    found = []
    for _ in range(3):
        buttons = browser.find_elements(By.CSS_SELECTOR, "form[data-md-component=palette] label")
        next(button for button in buttons if button.is_displayed()).click()
        found.append(scheme(browser))
    assert found == ["default", "slate", "slate"], "light, dark, and those of the system again"


def scheme(browser: Chrome) -> str | None:
    return browser.find_element(By.TAG_NAME, "body").get_attribute("data-md-color-scheme")


@pytest.mark.needs("zensical")
def test_code_is_copied_by_a_button(served: tuple[Chrome, str]) -> None:
    browser, address = served
    browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": address},
    )
    browser.get(address)
    button = WebDriverWait(browser, 30).until(
        lambda page: page.find_elements(By.CSS_SELECTOR, "[data-md-type=copy], .md-clipboard, .md-code__button")
    )[0]
    ActionChains(browser).move_to_element(button).click().perform()
    code = browser.find_element(By.CSS_SELECTOR, "pre code").text.strip()
    read = "navigator.clipboard.readText().then(arguments[0])"
    WebDriverWait(browser, 30).until(lambda page: page.execute_async_script(read).strip() == code != "")
