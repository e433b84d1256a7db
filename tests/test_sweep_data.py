"""What a sweep says of the data of its configs, by their plans and by what was read."""

from pathlib import Path

import pytest

from tests.sweeps import Sweep, results_of

FASTER = ("load.batch_size=2,8", "model.step_ms=100")
"""Two configs of which the second, with fewer steps, is the faster one."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["load.drop_remainder=false"],
            "same examples as the baseline in another order, by its plan and the records read",
        ),
        (
            ["load.drop_remainder=false", "measure.digest=true", "trainer.learning_rate=0.1,0.2"],
            (
                "same examples as the baseline in another order, by the digests of their common epochs; "
                "the training differs"
            ),
        ),
        (
            ["load.drop_remainder=true"],
            (
                "not known to be the same data: load.drop_remainder=true: with a different order or different batches, "
                "a pass drops different examples; measure.digest was not set"
            ),
        ),
    ],
)
def test_another_order_of_the_same_examples_is_said_where_none_is_left_out(
    words: list[str], said: str, sweep: Sweep, tmp_path: Path
) -> None:
    zipped = ["sweep.zip=[[load.batch_size,trainer.learning_rate]]"] if len(words) > 2 else []
    assert sweep(*FASTER, *words, *zipped) == 0
    decision = results_of(tmp_path)["decision"]
    assert (decision["config"], decision["same_data"]) == (1, said)
    assert f"{said[:1].upper()}{said[1:]}." in (tmp_path / "sweep" / "report.md").read_text()
