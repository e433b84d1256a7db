"""What a config may say of URLs and their stores."""

import pytest

from etlrun.system.errors import ConfigError
from tests.configs import spec_of

_REFUSED = (
    "expected a URL without credentials, which summaries and pages would tell\n"
    "    -> let the library of the store find credentials, as in the environment"
)


def test_credentials_in_a_config_are_refused_and_not_shown() -> None:
    words = ("dataset=table", "dataset.target={price: number}", "transform=columns", "model=tabular")
    urls = ("https://me:secret@host/a.csv", "s3://bucket/b.csv?X-Amz-Signature=abc", "http://me:secret@[::1/c.csv")
    with pytest.raises(ConfigError) as caught:
        spec_of(*words, f"dataset.files=[{','.join(map(repr, urls))}]", "dataset.storage={password: abc}")
    expected = "expected a URL without credentials, which summaries and pages would tell"
    remedy = "    -> let the library of the store find credentials, as in the environment"
    options = "anon, at_once, endpoint_url, key, profile, project, requester_pays, secret or token"
    assert str(caught.value) == "\n".join(
        [
            f"dataset.files: found https://...@host/a.csv; {expected}",
            remedy,
            f"dataset.files: found s3://bucket/b.csv?...; {expected}",
            remedy,
            "dataset.files: found http://...; expected a URL such as s3://bucket/data or https://host/data",
            "    -> check the name of its host",
            f"dataset.storage: found password; expected null, or a mapping from {options}",
            remedy,
        ]
    )


@pytest.mark.parametrize(
    ("storage", "found"),
    [
        ("{anon: 'no'}", "anon: no; expected true or false\n    -> set anon: true, or leave it out"),
        (
            "{endpoint_url: 'host:9000'}",
            "endpoint_url: host:9000; expected a URL with http:// or https://\n    -> write the scheme before the host",
        ),
        (
            "{endpoint_url: 'http://me:secret@host'}",
            f"endpoint_url: http://...@host; {_REFUSED}",
        ),
    ],
)
def test_values_of_storage_that_are_none_are_refused(storage: str, found: str) -> None:
    words = ("dataset=table", "dataset.target={price: number}", "transform=columns", "model=tabular")
    with pytest.raises(ConfigError) as caught:
        spec_of(*words, "dataset.files=s3://bucket/a.csv", f"dataset.storage={storage}")
    assert str(caught.value) == f"dataset.storage: found {found}"
