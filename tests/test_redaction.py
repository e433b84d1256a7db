"""What is taken out of a text before strangers read it, and what is left."""

import os
import socket
import sys
from pathlib import Path

import pytest

from etlrun.system.redaction import redacted

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def jane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with secrets, on a host with a name."""
    names = {"HOME": "/data/jane.doe", "USER": "jane", "LOGNAME": "jane"}
    secrets = {"STORE_KEY": "planted/key", "MY_TOKEN": "Planted token", "DB_PASSWORD": "it's", "SHELL_TOKEN": "short"}
    for name, value in {**names, **secrets}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "box7.acme.example")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("data in /data/jane.doe/photos and /data/jane.doe", "data in ~/photos and ~"),
        ("/data/jane.doer/a is of another", "…/a is of another"),
        ("/home/bob/x/y.yaml, '/Users/Ann B/z'", "~/x/y.yaml, '…/z'"),
        ("read '/mnt/our photos/acme' and /mnt/acme/cats:", "read '…/acme' and …/cats:"),
        ("dataset.dir=/mnt/acme/cats", "dataset.dir=…/cats"),
        (
            "relative mine/a.yaml:1234: x, ./b, ../c/d, 1/4 and/or",
            "relative mine/a.yaml:1234: x, ./b, ../c/d, 1/4 and/or",
        ),
        (
            'File "/opt/acme/lib/python3.12/site-packages/keras/a.py", line 3',
            'File "…/site-packages/keras/a.py", line 3',
        ),
        ('File "/opt/acme/lib/python3.12/json/a.py", line 3', 'File "…/lib/python3.12/json/a.py", line 3'),
        (f'File "{ROOT}/etlrun/run/run.py"', 'File "…/etlrun/run/run.py"'),
        ("s3://bucket/acme/data.tar?X-Amz-Signature=ab", "s3://…/data.tar"),
        ("http://me:pw@store:9000, and (https://a.b/c).", "http://…, and (https://…)."),
        ("https://hooks.a.b/T0/Xk3jd8Xk3jd8", "https://…"),
        ("see https://github.com/etlrun/etlrun/issues", "see https://github.com/etlrun/etlrun/issues"),
        ("jane@acme.example asks box7, BOX7.acme.example. box7.", "…@… asks HOST, HOST. HOST."),
        ("box7.other.example, box77 abox7 box7-gpu", "HOST, box77 abox7 HOST-gpu"),
        ("jane ran it, janet did not; by_jane", "USER ran it, janet did not; by_USER"),
        ("cpu1:5050, cpu2.acme:50051, 10.1.2.3 and 8.8.4.4:80", "HOST:5050, HOST:50051, HOST and HOST:80"),
        ("opencv 4.13.0.92 at 12:30, line:12", "opencv 4.13.0.92 at 12:30, line:12"),
        ("planted/key planted%2Fkey planted_key", "*** *** planted_key"),
        ("'Planted token' planted+token short", "'***' *** short"),
        ('{"secret": "two words", api_key: abc}', '{"secret": ***, api_key: ***}'),
        ("dataset.storage.token=abc password = x y", "dataset.storage.token=*** password = *** y"),
        ("secret: correct horse, key: a b\nnext", "secret: ***, key: ***\nnext"),
        ("storage.secret: found no value of ${oc.env:A}", "storage.secret: found no value of ${oc.env:A}"),
        ("secret: ${oc.env:A}, tokens 300, tokenizer: words", "secret: ${oc.env:A}, tokens 300, tokenizer: words"),
        ("expected overrides KEY=VALUE; key=values", "expected overrides KEY=VALUE; key=***"),
        ("AKIAIOSFODNN7EXAMPLE ghp_0123456789abcdefgh", "*** ***"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("\x1b[31mred\x1b[0m \x07bell\r\nnext\tone", "red bell\nnext\tone"),
    ],
)
def test_what_is_private_is_taken_out(text: str, left: str) -> None:
    assert redacted(text) == left


def test_known_paths_may_hold_spaces() -> None:
    text = "data_dir  /mnt/our photos/acme cats  speed"
    assert redacted(text, ["/mnt/our photos/acme cats", "train"]) == "data_dir  …/acme cats  speed"


def test_a_user_without_account_and_home_has_nothing_to_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USER", "LOGNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert redacted("jane / root /x") == "jane / root …/x"


def test_another_system_knows_no_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pwd", None)
    assert redacted("/data/jane.doe of jane") == "~ of USER"
