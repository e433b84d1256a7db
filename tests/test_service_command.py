"""What `etlrun service` refuses before it serves, and addresses that no dispatcher can have."""

import pytest

from etlrun.cli import main as cli
from tests.configs import refusal_of_spec

FAULTS = {
    "dispatcher --port 0": "--port: found 0; expected an integer from 1 to 65535",
    "dispatcher --port 65536": "--port: found 65536; expected an integer from 1 to 65535",
    "worker --dispatcher localhost:5050 --port -5": "--port: found -5; expected an integer from 0 to 65535",
    "worker --dispatcher localhost:5050 --port x": "--port: found x; expected an integer from 0 to 65535",
    "worker --dispatcher localhost:5050 --host ": "--host: found nothing; expected a name of this machine",
    "worker --dispatcher localhost": "--dispatcher: found localhost; expected HOST:PORT",
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_port_that_can_not_be_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["service", *words.split(" ")])
    assert (ended.value.code, capsys.readouterr().err) == (2, f"etlrun: 1 fault\n  {FAULTS[words]}\n")


@pytest.mark.parametrize("role", [["dispatcher"], ["worker", "--dispatcher", "localhost:1"]], ids=lambda of: of[0])
def test_servers_want_a_trusted_network(role: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["service", *role])
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        (
            "etlrun: 1 fault\n  --trusted-network: found no such option; expected it, since tf.data's service listens "
            "on all interfaces, and neither encrypts nor authenticates\n    -> add --trusted-network where a firewall "
            "lets only machines that you trust through\n"
        ),
    )


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


def test_an_address_has_a_port_that_can_be() -> None:
    words = ("load=service", "load.service.trusted_network=true", "cache=none")
    assert refusal_of_spec(*words, "load.service.address=[localhost:65535,localhost:65536]") == (
        "load.service.address: found the port 65536; expected a port of at most 65535\n    -> name the port of the "
        "dispatcher"
    )
