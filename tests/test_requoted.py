"""What Hydra's grammar refuses without quotes, and the same words with the quotes that it needs."""

import shlex

import pytest

from etlrun.config.overrides import parsed
from tests.configs import refusal_of_diff

SAME = "quote the value, once for Hydra and once for the shell: "
REMEDIES = {
    "trainer.metrics=[accuracy,f1_of_bär]": """'trainer.metrics=[accuracy,"f1_of_bär"]'""",
    "trainer.metrics=[accuracy,'f1_of_bär]": """'trainer.metrics=[accuracy,"f1_of_bär"]'""",
    "load.service.address=[[::1]:5050,cpu1:5050]": """'load.service.address=["[::1]:5050",cpu1:5050]'""",
    "load.service.address=[::1]:5050": """'load.service.address="[::1]:5050"'""",
    "trainer.metrics=[f1,,f1_of_bär]": """'trainer.metrics="[f1,,f1_of_bär]"'""",
    "trainer.resume=a=b": """'trainer.resume="a=b"'""",
    "'trainer.resume=\"a=b\"'": """'trainer.resume="a=b"'""",
    "trainer.resume=it's": """'trainer.resume="it'"'"'s"'""",
    "'trainer.resume='": "write trainer.resume=VALUE",
}


@pytest.mark.parametrize("word", REMEDIES)
def test_the_remedy_of_an_unread_override_is_read(word: str) -> None:
    overrides, (fault,) = parsed([word], None)
    assert (overrides, fault.where) == ([], word)
    assert fault.remedy.removeprefix(SAME) == REMEDIES[word]
    if fault.remedy.startswith(SAME):
        assert not parsed(shlex.split(REMEDIES[word]), None)[1]


QUOTE = "quote the value for Hydra, within the argument and for the shell: "
ARGUMENTS = {
    'dataset.split="train[:60%]"': (QUOTE, """"'dataset.split=\\"train[:60%]\\"'\""""),
    'load.prefetch=1 dataset.split="train[:60%]"': (QUOTE, """"load.prefetch=1 'dataset.split=\\"train[:60%]\\"'\""""),
    "logger.run_name=a$b=c": (QUOTE, """''"'"'logger.run_name="a$b=c"'"'"''"""),
    "logger.run_name=a b": (QUOTE.replace("the value", "a value with spaces"), """"'logger.run_name=\\"a b\\"'\""""),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_the_remedy_within_an_argument_is_read(argument: str) -> None:
    told, shown = ARGUMENTS[argument]
    assert refusal_of_diff("", argument).splitlines()[1] == f"    -> {told}{shown}"
    (read,) = shlex.split(shown)
    assert not parsed(shlex.split(read), None)[1]
    assert all("=" in word for word in shlex.split(read))
