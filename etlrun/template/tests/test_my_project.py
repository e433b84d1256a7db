from pathlib import Path

import etlrun
import tensorflow as tf

from my_project.steps import Grey

PROJECT = Path(__file__).parents[1]


def test_grey_takes_the_colour_away() -> None:
    red = tf.constant([[[255, 0, 0]]], tf.uint8)
    assert Grey.op(red, strength=0.0).numpy().tolist() == [[[255.0, 0.0, 0.0]]]
    assert Grey.op(red, strength=1.0).numpy().tolist() == [[[85.0, 85.0, 85.0]]]


def test_the_model_gets_grey_images() -> None:
    planned = etlrun.plan("experiment=first", "transform.my_project_grey.strength=1.0", config_dir=PROJECT / "conf")
    with planned.datasets() as datasets:
        images, labels = next(iter(datasets["train"]))
    assert (images.shape, labels.shape) == ((32, 64, 64, 3), (32,))
    assert tf.reduce_max(tf.abs(images[..., 0] - images[..., 2])) < 1e-5
