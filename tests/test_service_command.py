"""What `etlrun service` refuses before it serves, and addresses that no dispatcher can have."""

import pytest

from etlrun.cli import main as cli
from etlrun.stages.service import is_loopback
from tests.configs import refusal_of_spec

FAULTS = {
    "dispatcher --port 0": "argument --port: found 0; expected an integer from 1 to 65534",
    "dispatcher --port 65535": "argument --port: found 65535; expected an integer from 1 to 65534",
    "worker --dispatcher localhost:5050 --port -5": "argument --port: found -5; expected an integer from 0 to 65535",
    "worker --dispatcher localhost:5050 --port x": "argument --port: found x; expected an integer from 0 to 65535",
    "dispatcher --host ": "argument --host: found nothing; expected a name of this machine",
    "worker --dispatcher localhost": "argument --dispatcher: found localhost; expected HOST:PORT",
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_port_that_can_not_be_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["service", *words.split(" ")])
    error = f"etlrun service {words.split(maxsplit=1)[0]}: error: {FAULTS[words]}"
    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (2, error)


def test_a_host_without_an_address_is_told_from_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["service", "dispatcher", "--host", "no.such.host.invalid", "--trusted-network"])
    found, _, rest = capsys.readouterr().err.partition(";")
    assert (ended.value.code, found.startswith("etlrun: 1 fault\n  --host: found no.such.host.invalid: ")) == (1, True)
    assert rest == " expected a name of this machine that has an IPv4 address\n    -> choose another --host\n"


def test_a_worker_has_a_name_at_which_it_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["service", "worker", "--dispatcher", "cpu1:5050", "--host", "0.0.0.0", "--trusted-network"])  # noqa: S104
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        (
            "etlrun: 1 fault\n  --host: found 0.0.0.0; expected the name under which runs on other machines reach "
            "this one\n    -> name it\n"
        ),
    )


def test_a_port_without_a_next_one_is_refused() -> None:
    words = ("load=service", "load.service.workers=null", "cache=none")
    assert refusal_of_spec(*words, "load.service.address=[localhost:65534,localhost:65535]") == (
        "load.service.address: found the port 65535; expected a port of at most 65534, since the dispatcher tells its "
        "versions at the next one\n    -> name the port of the dispatcher"
    )


def test_only_what_no_other_machine_can_reach_is_loopback() -> None:
    others = ("127.example.org", "127.0.0.1.example.org", "localhost.example.org", "[::]", "128.0.0.1")
    assert not any(is_loopback(host) for host in others)
    assert all(is_loopback(host) for host in ("localhost", "LocalHost", "127.0.0.1", "127.1", "[::1]"))
