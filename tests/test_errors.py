import pytest

from etlrun.system.errors import ConfigError, EtlrunError, Fault, WorldError, describe, did_you_mean, headline

PLAIN = Fault(where="trainer.epochs", found="0", expected="a positive integer")
WITH_REMEDY = Fault(where="cache.name", found="'disc'", expected="one of none, disk", remedy="did you mean `disk`?")


def test_a_fault_says_where_what_was_found_and_what_was_expected() -> None:
    assert str(PLAIN) == "trainer.epochs: found 0; expected a positive integer"


def test_a_remedy_stands_on_a_line_of_its_own() -> None:
    assert str(WITH_REMEDY) == "cache.name: found 'disc'; expected one of none, disk\n    -> did you mean `disk`?"


def test_a_config_error_tells_all_its_faults_in_order_and_ends_with_status_2() -> None:
    error = ConfigError([WITH_REMEDY, PLAIN])
    assert str(error) == f"{WITH_REMEDY}\n{PLAIN}"
    assert error.faults == (WITH_REMEDY, PLAIN)
    assert error.status == 2


def test_a_world_error_has_one_fault_and_ends_with_status_1() -> None:
    error = WorldError(where="/data", found="no such folder", expected="a folder", remedy="make it")
    assert str(error) == "/data: found no such folder; expected a folder\n    -> make it"
    assert error.status == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError([PLAIN]), f"etlrun: 1 fault\n  {PLAIN}"),
        (ConfigError([PLAIN, WITH_REMEDY]), f"etlrun: 2 faults\n  {PLAIN}\n  {WITH_REMEDY}"),
    ],
)
def test_a_command_counts_the_faults_that_end_it(error: EtlrunError, message: str) -> None:
    assert describe(error) == message


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("epoch", ["epochs", "seed"], "did you mean `epochs`?"),
        ("interleeve", ["tfds", "sequential", "interleave"], "did you mean `interleave`?"),
        ("memory", ["memory", "memories"], "otherwise"),
        ("xyz", ["epochs", "seed"], "otherwise"),
        ("epochs", [], "otherwise"),
    ],
)
def test_the_likeliest_word_is_suggested_where_there_is_one(word: str, known: list[str], expected: str) -> None:
    assert did_you_mean(word, known, otherwise="otherwise") == expected


def test_a_suggestion_is_shown_as_it_is_to_be_written() -> None:
    assert did_you_mean("dik", ["disk"], "cache={}") == "did you mean cache=disk?"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", "ValueError"),
        ("\n  \n", "ValueError"),
        ("first line\nsecond line", "first line"),
        ("  indented  ", "indented"),
        ("{{function_node __wrapped__ReadFile}} no such file [Op:ReadFile]", "no such file"),
        ("cut short\n\t [[{{node DecodeJpeg}}]]", "cut short"),
        (
            "Graph execution error:\n\nDetected at node A\n  a frame\nInput is empty.\n\t [[{{node DecodeJpeg}}]]",
            "Input is empty.",
        ),
    ],
)
def test_a_headline_is_the_line_that_tells_most(message: str, expected: str) -> None:
    assert headline(ValueError(message)) == expected
