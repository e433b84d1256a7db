"""Server of the pages of a run or a sweep for a browser on this machine, which reloads a page when it changes.

It reads files and writes none. The addresses are those that `Pages` knows; any other one is not found.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socketserver
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from etlrun.record import page as run_page
from etlrun.record.locks import is_nobodys
from etlrun.record.record import PAGE
from etlrun.record.summary import RUNNING, SUMMARY, read_summary
from etlrun.results.folders import is_file, jobs_of, kind_of
from etlrun.system import pages
from etlrun.system.errors import WorldError

HOST = "127.0.0.1"
_HOSTS = (HOST, "localhost")
_PACKAGE = "etlrun.results"
_SILENT_S = 10.0
"""Time that a client may take to send a request."""
_POLICY, _AFTER_POLICY = "content=\"default-src 'none'; ", '<meta name="viewport"'
"""Start of the content security policy of each page, and what follows it."""


class Shown(NamedTuple):
    """A page as it is served.

    Attributes:
        tag: Its entity tag, which changes with the page.
        text: The page in UTF-8.
    """

    tag: str
    text: bytes


class Pages:
    """The pages of the run or the sweep in `folder`: its own at `/`, those of the jobs of a sweep at `/JOB/`.

    The pages of evaluations are at `evaluations/NAME.html` below that of their run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_sweep = folder, kind_of(folder) == "sweep"
        self._statuses: dict[Path, tuple[tuple[int, int], str]] = {}

    def at(self, address: str) -> Shown | None:
        """Return the page at an address, as the browser sends it; None if there is none."""
        if self.is_sweep and address == "/":
            return _shown(self._of_sweep())
        runs = {f"/{job.name}/": job for job in jobs_of(self.folder)} if self.is_sweep else {"/": self.folder}
        if address in runs:
            return _shown(self._of_run(runs[address]))
        head, mark, name = address.partition(f"{run_page.EVALUATIONS}/")
        return _shown(_of_evaluation(runs[head], name)) if mark and head in runs else None

    def _of_sweep(self) -> str:
        """Return the report of a sweep below the list of its jobs; the list alone until there is one."""
        jobs = [(job.name, self._status(job)) for job in jobs_of(self.folder)]
        listed = pages.rendered(_PACKAGE, "jobs.html.j2", jobs=jobs, folder=str(self.folder))
        report = _read(self.folder / PAGE)
        if report is None:
            return listed
        return report.replace("<main>", f"<main>{listed.partition('<main>')[2].partition('</main>')[0]}", 1)

    def _of_run(self, run: Path) -> str | None:
        """Return the page of a run; made anew if there is none, or if the run was killed, and its page says it runs."""
        written = _read(run / PAGE)
        return run_page.html(run) if written is None or self._status(run) == "killed" else written

    def _status(self, run: Path) -> str:
        """Return the status of a run, whose summary is read again only if it has changed; empty if there is none."""
        try:
            found = (run / SUMMARY).stat()
        except OSError:
            return ""
        key = (found.st_mtime_ns, found.st_size)
        if self._statuses.get(run, ((), ""))[0] != key:
            summary = read_summary(run)
            self._statuses[run] = (key, summary.status if summary else "")
        status = self._statuses[run][1]
        return "killed" if status == RUNNING and is_nobodys(run) else status


def _of_evaluation(run: Path, name: str) -> str | None:
    folder = run / run_page.EVALUATIONS
    if folder.is_symlink():
        return None
    known = {quote(path.name, errors="surrogateescape"): path for path in folder.glob("*.html")}
    return _read(known[name]) if name in known else None


def _read(path: Path) -> str | None:
    """Return the text of a file; None if there is none, and for a symbolic link."""
    if not is_file(path):
        return None
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _shown(text: str | None) -> Shown | None:
    """Return a page with the script that reloads it, and with a policy that allows that script and its requests."""
    if text is None:
        return None
    tag, script = hashlib.sha256(text.encode()).hexdigest()[:32], pages.text_of(_PACKAGE, "reload.js")
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    head, mark, rest = text.partition(_AFTER_POLICY)
    if "script-src " in head:
        head = head.replace("script-src ", f"script-src {allowed} ", 1)
    else:
        head = head.replace(_POLICY, f"{_POLICY}script-src {allowed}; ", 1)
    head = head.replace(_POLICY, f"{_POLICY}connect-src 'self'; ", 1)
    rest, end, last = rest.rpartition("</body>")
    return Shown(tag, f'{head}{mark}{rest}<script data-tag="{tag}">{script}</script>\n{end}{last}'.encode())


class Server(ThreadingHTTPServer):
    """Server of `shown` on 127.0.0.1.

    Raises:
        WorldError: The port can't be used.
    """

    daemon_threads = True

    def __init__(self, shown: Pages, port: int) -> None:
        self.shown = shown
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise WorldError(
                where=f"--port {port}",
                found=error.strerror or type(error).__name__,
                expected="a free port",
                remedy="choose another one, or leave it out for any free one",
            ) from error

    def server_bind(self) -> None:
        """Bind the socket; the base class would also look up the name of the host."""
        socketserver.TCPServer.server_bind(self)

    @cached_property
    def url(self) -> str:
        """Address of the first page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that has gone."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, if the request was sent to this machine by name: another site can't have it sent."""

    server: Server
    timeout = _SILENT_S
    server_version, sys_version = "etlrun", ""

    def do_GET(self) -> None:
        """Send a page."""
        hosts = self.headers.get_all("Host") or []
        if [host.removesuffix(f":{self.server.server_address[1]}") in _HOSTS for host in hosts] != [True]:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        found = self.server.shown.at(self.path)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        is_known = self.headers.get("If-None-Match") == f'"{found.tag}"'
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK)
        self.send_header("ETag", f'"{found.tag}"')
        if not is_known:
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(found.text)))
        self.end_headers()
        if not is_known and self.command == "GET":
            self.wfile.write(found.text)

    do_HEAD = do_GET  # noqa: N815 - the name of the base class

    def do_POST(self) -> None:
        """Refuse to change anything."""
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = do_POST  # noqa: N815 - the same

    def end_headers(self) -> None:
        """Add the headers of all answers: nothing is stored, embedded elsewhere, or told to other sites."""
        for name, value in (
            ("Cache-Control", "no-store"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Print nothing: a browser asks every two seconds."""
