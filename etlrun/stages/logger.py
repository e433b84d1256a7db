"""Loggers: where the figures of a run are written beside its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from etlrun.stages.base import SPEED, OptionalText, Stage, Text
from etlrun.stages.made import Made


class Logger(Stage):
    """A place that the figures of each epoch, and those at the end of a run, are written to.

    Attributes:
        package: Package that has to be installed; empty for none.
        extra: Extra of etlrun that installs it.
        remedy: What to do if it fails.
        writer: `MODULE:CLASS` of its `Writer`; empty for none.
        callback: Keras's own callback for it, which an ejected program has; None for none.
    """

    block = "logger"
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    remedy: ClassVar[str] = "free disk space, and check the permissions of the folder"
    writer: ClassVar[str] = ""
    callback: ClassVar[Made | None] = None

    @property
    def name(self) -> str:
        """Its name in a config."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class NoLogger(Logger):
    """No log beside the run's folder."""

    path = "logger.none"


@dataclass(frozen=True, kw_only=True)
class TensorBoard(Logger):
    """Writes event files for TensorBoard into `tensorboard/` in the run's folder."""

    path = "logger.tensorboard"
    package = "tensorboard"
    extra = "tensorboard"
    writer = "etlrun.run.writers:TensorBoardWriter"
    callback = Made("keras.callbacks.TensorBoard", ("tensorboard",), {"write_graph": False})


@dataclass(frozen=True, kw_only=True)
class Csv(Logger):
    """Writes `csv/epochs.csv`, with a row for each epoch, and `csv/run.csv` into the run's folder."""

    path = "logger.csv"
    writer = "etlrun.run.writers:CsvWriter"
    callback = Made("keras.callbacks.CSVLogger", ("epochs.csv",))


@dataclass(frozen=True, kw_only=True)
class Mlflow(Logger):
    """Logs to MLflow: a server, a database or a folder.

    Attributes:
        tracking_uri: URI of the store, such as `http://HOST:5000` or `sqlite:///mlflow.db`; null for MLflow's own
            choice, which the environment variable MLFLOW_TRACKING_URI sets.
        experiment_name: Name of the experiment; it is created if there is none.
    """

    path = "logger.mlflow"
    package = "mlflow"
    extra = "mlflow"
    writer = "etlrun.run.writers:MlflowWriter"
    remedy = "check that the server of logger.tracking_uri runs and can be reached, and MLflow's credentials"

    tracking_uri: Annotated[OptionalText, SPEED]
    experiment_name: Annotated[Text, SPEED]


@dataclass(frozen=True, kw_only=True)
class Wandb(Logger):
    """Logs to Weights & Biases, or into `wandb/` in the run's folder, from where `wandb sync` uploads it.

    Attributes:
        project: Name of the project.
        entity: Name of the user or the team; null for the default of the account.
        mode: `online` uploads during the run, `offline` writes files only.
    """

    path = "logger.wandb"
    package = "wandb"
    extra = "wandb"
    writer = "etlrun.run.writers:WandbWriter"
    remedy = (
        "run `wandb login` or set WANDB_API_KEY, check the network, or set logger.mode=offline and `wandb sync` later"
    )

    project: Annotated[Text, SPEED]
    entity: Annotated[OptionalText, SPEED]
    mode: Annotated[Literal["online", "offline"], SPEED]


LOGGERS: dict[str, type[Logger]] = {
    of.path.removeprefix("logger."): of for of in (NoLogger, TensorBoard, Csv, Mlflow, Wandb)
}
