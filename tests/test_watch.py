"""`etlrun watch` over a real socket: which pages it serves, what it refuses, and that a browser reloads."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGINT
from threading import Thread

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from etlrun.cli.main import main
from etlrun.record import page as pages
from etlrun.record.locks import nobodys
from etlrun.results.watch import Pages, Server
from tests.made import sweep
from tests.pages import chromium, log
from tests.run_pages import course, epoch, whole

Answer = tuple[int, dict[str, str], str]


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port at which the pages of a folder are served."""
    with Server(Pages(folder), 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def asked(port: int, path: str = "/", method: str = "GET", **headers: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    with connection.getresponse() as answer:
        return answer.status, dict(answer.getheaders()), answer.read().decode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched") / "run"
    whole(folder)
    pages.write(folder)
    (folder / "evaluations" / "away.html").symlink_to("/etc/passwd")
    (folder / "evaluations" / "a b.html").write_text("<body></body>")
    return folder


@pytest.fixture(scope="module")
def port(run: Path) -> Iterator[int]:
    with served(run) as port:
        yield port


def test_the_page_of_a_run_is_served_with_a_script_that_its_policy_allows(port: int, run: Path) -> None:
    status, headers, text = asked(port)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    written = (run / "report.html").read_text()
    assert "<script" not in written
    assert text.count("<script") == 1
    assert text.index("script-src 'sha256-") < text.index("<title>")
    body = written.partition("<body>")[2].rpartition("</body>")[0]
    assert body in text
    assert {name: headers[name] for name in ("Cache-Control", "X-Frame-Options", "Referrer-Policy")} == {
        "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    }  # fmt: skip


def test_the_tag_tells_whether_a_page_has_changed(port: int) -> None:
    _, headers, _ = asked(port)
    assert asked(port, If_None_Match=headers["ETag"])[::2] == (304, "")
    status, of_head, text = asked(port, method="HEAD")
    assert (status, of_head["ETag"], of_head["Content-Length"], text) == (
        200, headers["ETag"], headers["Content-Length"], "",
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/evaluations/validation.html", "/evaluations/a%20b.html"])
def test_the_page_of_an_evaluation_is_served(port: int, path: str) -> None:
    assert asked(port, path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/report.html", "/summary.json", "/config.yaml", "/..", "/../", "/../run/", "/../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/./", "/?a", "/#", "*", "http://evil.example/", "/0/",
        "/evaluations/", "/evaluations/validation.json", "/evaluations/../report.html", "/evaluations/away.html",
        "/evaluations/%2e%2e/report.html", "/evaluations/validation.html/", "/evaluations//validation.html",
        "/evaluations/a b.html", "/\x00", "/evaluations/*.html",
    ],
)  # fmt: skip
def test_no_other_path_is_found(port: int, path: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert int(answer.split()[1]) in (400, 404)
    assert b"root:" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_no_other_method_is_allowed(port: int, method: str) -> None:
    status, headers, _ = asked(port, method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1", 200), ("localhost:{}", 200), ("127.0.0.1:{}", 200), ("evil.example", 403),
        ("evil.example:{}", 403), ("localhost.evil.example", 403), ("localhost:1", 403), ("", 403),
        ("evil.example, localhost", 403),
    ],
)  # fmt: skip
def test_only_this_machine_is_a_host(port: int, host: str, status: int) -> None:
    assert asked(port, Host=host.format(port))[0] == status


@pytest.mark.parametrize("hosts", ["", "Host: localhost\r\nHost: evil.example\r\n"])
def test_a_request_names_one_host(port: int, hosts: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET / HTTP/1.0\r\n{hosts}\r\n".encode())
        assert connection.recv(65_536).split()[1] == b"403"


def test_a_page_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    course(tmp_path / "run", epoch(1))
    (tmp_path / "run" / "report.html").symlink_to("/etc/passwd")
    with served(tmp_path / "run") as port:
        status, _, text = asked(port)
    assert (status, "root:" in text, "<title>Run: completed, 1 epochs</title>" in text) == (200, False, True)


def test_a_run_without_a_page_and_a_killed_one_are_shown_as_they_are(tmp_path: Path) -> None:
    course(tmp_path, epoch(1), status="running")
    with served(tmp_path) as port:
        with nobodys(tmp_path):
            assert ">running</span>" in asked(port)[2]
            pages.write(tmp_path)
            assert ">running</span>" in asked(port)[2]
        assert ">killed</span>" in asked(port)[2]
    assert ">running</span>" in (tmp_path / "report.html").read_text()


def test_a_sweep_has_the_pages_of_its_jobs(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", "completed", "running").folder
    (folder / "7").symlink_to(folder / "0")
    (folder / "0" / "evaluations").mkdir()
    (folder / "0" / "evaluations" / "test.html").write_text("<body>of a job</body>")
    with served(folder) as port:
        listed = asked(port)[2]
        assert '<li><a href="0/">0</a> completed</li><li><a href="1/">1</a> killed</li></ul>' in listed
        assert "Completed" in asked(port, "/0/")[2]
        assert "of a job" in asked(port, "/0/evaluations/test.html")[2]
        assert [asked(port, path)[0] for path in ("/7/", "/0", "/0/0/", "/attempts/", "/2/")] == [404] * 5
        main(["report", str(folder)])
        text = asked(port)[2]
    assert '<a href="1/">1</a> killed' in text
    assert text.index("connect-src 'self'; ") < text.index("script-src 'sha256-") < text.index("<title>Sweep: ")
    assert text[: text.index("<title>")].count("'sha256-") == 2


def test_nothing_is_written(port: int, run: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in run.rglob("*")}
    asked(port)
    asked(port, "/evaluations/validation.html")
    assert {path: path.lstat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_browser_shows_the_new_page_when_it_changes(tmp_path: Path) -> None:
    record = course(tmp_path, epoch(1))
    pages.write(tmp_path)
    with chromium() as browser, served(tmp_path) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        assert browser.find_element(By.TAG_NAME, "h1").text == "Completed, 1 epochs"
        record.epoch(epoch(2))
        pages.write(tmp_path)
        title = "Run: completed, 2 epochs"
        WebDriverWait(browser, 20).until(lambda page: page.title == title)
        complaints = [entry for entry in log(browser, "browser") if "favicon" not in entry["message"]]
        assert complaints == []


def test_a_folder_without_a_run_and_a_port_that_is_taken_are_told(
    tmp_path: Path, run: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, status, message in (
        ([str(tmp_path)], 1, f"  {tmp_path}: found no run; expected the folder of a run, with a summary.json, or of a"),
        ([str(tmp_path / "a")], 1, f"  {tmp_path}/a: found no such folder; expected the folder of a run, with a"),
        ([str(run), "--port", str(port)], 1, f"  --port {port}: found Address already in use; expected a free port\n"),
        ([str(run), "--port", "65536"], 2, "argument --port: found 65536; expected a port from 0 to 65535\n"),
        ([str(run), "--port", "x"], 2, "argument --port: found x; expected a port from 0 to 65535\n"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(["watch", *arguments])
        assert ended.value.code == status
        assert message in capsys.readouterr().err


def test_the_command_prints_its_address_and_ends_with_an_interrupt(run: Path) -> None:
    program = "import sys; from etlrun.cli.main import main; main(); sys.exit('tensorflow' in sys.modules)"
    command = [sys.executable, "-c", program, "watch", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.removeprefix("watch     http://127.0.0.1:").partition("/")[0])
        assert asked(port)[0] == 200
        process.send_signal(SIGINT)
        assert process.communicate() == ("\n", "")
    assert process.returncode == 0
