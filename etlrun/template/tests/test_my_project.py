import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from my_project.steps import Grey

PROJECT = Path(__file__).parents[1]


def test_grey_takes_the_colour_away() -> None:
    red = tf.constant([[[255, 0, 0]]], tf.uint8)
    assert Grey.op(red, strength=0.0).numpy().tolist() == [[[255.0, 0.0, 0.0]]]
    assert Grey.op(red, strength=1.0).numpy().tolist() == [[[85.0, 85.0, 85.0]]]


def test_all_configs_are_sound() -> None:
    check = [sys.executable, "-m", "etlrun", "check", "--config-dir", "conf"]
    done = subprocess.run(check, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
