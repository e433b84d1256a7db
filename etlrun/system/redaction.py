"""Redaction of texts that strangers will read: no secrets, no names of users and hosts, and the ends of paths alone."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from etlrun.system.hidden import forms, hidden, without

SECRET, USER, HOST = "***", "USER", "HOST"
"""What stands in the place of a secret, and of names."""
_PROJECT = "https://github.com/etlrun/"
_CODE = f"{Path(__file__).parents[2]}/"
_OF_SECRETS = re.compile(r"key|token|secret|passw|passphrase|pwd|credential|cookie|webhook|dsn|auth", re.IGNORECASE)
"""Words in the names of variables of the environment whose values are secrets."""
_LEAST_SECRET = 6
"""Letters from which on such a value is one; shorter ones are switches, and in other words by chance."""
_TOKEN = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{16,}|github_pat_\w+|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|xox[a-z]-[\w-]+"
    r"|AIza[\w-]{30,}|sk-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*|(?<=[Bb]earer )[\w.+/=-]{8,}"
)
"""Tokens of well-known forms."""
_ASSIGNED = re.compile(
    r"""((?:passw\w*|secret|token|\bkey|_key|-key|apikey|credentials?|\bpwd|\bsas)['"]?\s*(?:(=)|:)\s*+)"""
    r"""(?!\$\{|\*|none\b|null\b|found\b|value\b)("[^"\n]*"|'[^'\n]*'|(?(2)[^\s'",;&)}\]]+|[^\n'",;)}\]]+))""",
    re.IGNORECASE,
)
"""What is assigned to a name of secrets."""
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s'\"<>`]+)")
_ENDS = ".,;:)]}"
"""Punctuation behind a URL."""
_FILE = re.compile(r"[\w-]{1,40}(?:\.[A-Za-z]\w{0,7}){1,2}")
"""Name of a file, as no token is: short, and with a suffix."""
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"
    r"|(?<![\w.])(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}(?![\w.])"
    r"|(?<![\w./-])(?!\S+\.(?:py|ya?ml|json|csv|j2):)[A-Za-z][\w-]*(?:\.[\w-]+)*(?=:\d{4,5}(?!\w))"
)
"""Addresses of hosts, and their names before a port."""
_STARTS = r"(?<![\w.~…/])"
_HOMES = re.compile(rf"{_STARTS}/(?:home|Users)/[^/\s'\"`:,;]+")
_QUOTED = re.compile(r"(?<=(['\"`]))(/[^'\"`\n]+)(?=\1)")
_PATH = re.compile(rf"{_STARTS}/(?!/)[^\s'\"`,;:|()\[\]{{}}<>]+")
_LIBRARIES = "/site-packages/", "/dist-packages/", "/lib/python3."
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def redacted(text: str, paths: Iterable[str] = ()) -> str:
    """Return a text without what is private; `paths` are some that may hold spaces.

    Secrets are values of variables of the environment whose names say so, what is assigned to such names, and tokens
    of well-known forms. Of a URL the scheme and the name of a file are left, of a path outside the home its last part,
    or that below Python's libraries, and of an address the port.
    """
    secrets = {form: SECRET for value in _secrets() for form in forms(value)}
    text = without(secrets, hidden(_UNPRINTABLE.sub("", text)))
    text = _URL.sub(_short_url, _ASSIGNED.sub(rf"\1{SECRET}", _TOKEN.sub(SECRET, text)))
    for home in _homes():
        text = re.sub(rf"{_STARTS}{re.escape(home)}(?![\w.-])", "~", text)
    for path in sorted({path for path in paths if path.startswith("/")}, key=len, reverse=True):
        text = text.replace(path, _short(path))
    text = _HOMES.sub("~", _QUOTED.sub(lambda match: _short(match[2]), text))
    text = _PATH.sub(lambda match: _short(match[0]), text)
    text = _ADDRESS.sub(HOST, _MAIL.sub("…@…", text))
    for name, instead in _names():
        domain = r"(?:\.[a-z][a-z0-9-]*)*" if instead == HOST else ""
        whole = rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9]){domain}"
        text = re.sub(whole, instead, text, flags=re.IGNORECASE)
    return text


def _secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if _OF_SECRETS.search(name) and len(value) >= _LEAST_SECRET and not value.startswith("/"):
            yield value


def _short_url(match: re.Match[str]) -> str:
    """Return a URL without server, folders, query and credentials, unless it is one of this project."""
    if match[0].startswith(_PROJECT):
        return match[0]
    whole = match[2].rstrip(_ENDS)
    path = whole.partition("?")[0].partition("#")[0].rstrip(_ENDS)
    file = path.rpartition("/")[2] if "/" in path else ""
    short = f"{match[1]}://…/{file}" if _FILE.fullmatch(file) else f"{match[1]}://…"
    return short + match[2][len(whole) :]


def _short(path: str) -> str:
    """Return the end of a path: of Python's libraries and of etlrun's code all below their folders."""
    for folder in filter(path.__contains__, _LIBRARIES):
        return f"…{path[path.index(folder) :]}"
    end = path.removeprefix(_CODE) if path.startswith(_CODE) else path.rstrip("/").rpartition("/")[2]
    return f"…/{end}"


def _homes() -> list[str]:
    """Return the names of this user's home, the longest first."""
    found = {os.environ.get("HOME", ""), *(home for _, _, home in _account())}
    found |= {os.path.realpath(of) for of in found if of}
    return sorted((of.rstrip("/") for of in found if of.startswith("/") and of.strip("/")), key=len, reverse=True)


def _names() -> Iterator[tuple[str, str]]:
    """Yield names of this user and of this host, each with what stands in its place."""
    users = {os.environ.get(name, "") for name in ("LOGNAME", "USER", "USERNAME")}
    users |= {of for name, whole, _ in _account() for of in (name, whole)}
    hosts = {socket.gethostname(), os.environ.get("HOSTNAME", "")}
    hosts |= {host.partition(".")[0] for host in hosts}
    for names, instead in ((hosts, HOST), (users, USER)):
        private = {name for name in names if len(name) > 1 and name not in ("root", "localhost")}
        yield from ((name, instead) for name in sorted(private, key=len, reverse=True))


def _account() -> Iterator[tuple[str, str, str]]:
    """Yield name, whole name and home of this user, if the system knows them."""
    with suppress(ImportError, KeyError):  # of another system, or of a container that runs as any user
        import pwd

        of = pwd.getpwuid(os.getuid())
        yield of.pw_name, of.pw_gecos.partition(",")[0], of.pw_dir
