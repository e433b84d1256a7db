"""What is measured and recorded of a run: the `measure` group, profiles and loggers."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etlrun.stages.base import SPEED, Expected, Fraction, OptionalText, Speed, Stage, Text, selectable
from etlrun.stages.flow import Faults
from etlrun.stages.made import Made
from etlrun.system.values import frozen


@frozen
class Measure(Stage):
    """The `measure` group.

    Attributes:
        au_min: Least accelerator utilization (AU), the share of the time in which the accelerator computes; below it
            the exit status is 3. MLPerf Storage requires 0.9 for ResNet-50.
        digest: Whether to compute a digest of the examples of each epoch, independent of their order.
    """

    path = "measure"

    au_min: Speed[Fraction | None]
    digest: Speed[bool]


Window = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]


@selectable
class NoProfile(Stage):
    """No profile is recorded."""

    path = "profile.none"
    block = "profile"
    windows: ClassVar[tuple[Window, ...]] = ()


@selectable
class Trace(Stage):
    """Records a TensorBoard profile of some windows of the training into the run's folder.

    Attributes:
        windows: [first, end) of each window, in training steps counted from 0 over all epochs; ordered and disjoint.
    """

    path = "profile.trace"
    block = "profile"

    windows: Annotated[
        tuple[Window, ...],
        Field(min_length=1),
        Expected("a list of windows [first step, end), for example [[10, 20]]"),
        SPEED,
    ]

    def faults(self) -> Faults:
        end = 0
        for first, next_end in self.windows:
            if first >= next_end or first < end:
                expected = "windows [first step, end) of at least one step, ordered and disjoint"
                yield "windows", str([*map(list, self.windows)]), expected, "write them as [[10, 20], [100, 110]]"
                return
            end = next_end


class Logger(Stage):
    """A place that the figures of each epoch, and those at the end of a run, are written to.

    Attributes:
        package: Package that has to be installed, and the extra of etlrun that installs it; empty for none.
        remedy: What to do if it fails.
        writer: `MODULE:CLASS` of its `Writer`; empty for none.
        callback: Keras's own callback for it, which an ejected program has; None for none.
    """

    block = "logger"
    package: ClassVar[str] = ""
    remedy: ClassVar[str] = "free disk space, and check the permissions of the folder"
    writer: ClassVar[str] = ""
    callback: ClassVar[Made | None] = None

    @property
    def name(self) -> str:
        """Its name in a config."""
        return self.path.rpartition(".")[2]


@selectable
class NoLogger(Logger):
    """No log beside the run's folder."""

    path = "logger.none"


@selectable
class TensorBoard(Logger):
    """Writes event files for TensorBoard into `tensorboard/` in the run's folder."""

    path = "logger.tensorboard"
    writer = "etlrun.run.loggers:TensorBoardWriter"
    package = "tensorboard"
    callback = Made("keras.callbacks.TensorBoard", ("tensorboard",), {"write_graph": False})


@selectable
class Mlflow(Logger):
    """Logs to MLflow: a server, a database or a folder.

    Attributes:
        tracking_uri: URI of the store, such as `http://HOST:5000` or `sqlite:///mlflow.db`; null for that of the
            variable MLFLOW_TRACKING_URI, or MLflow's own.
        experiment_name: Name of the experiment; it is created if there is none.
    """

    path = "logger.mlflow"
    writer = "etlrun.run.loggers:MlflowWriter"
    package = "mlflow"
    remedy = "check that the server of logger.tracking_uri runs and can be reached, and MLflow's credentials"

    tracking_uri: Speed[OptionalText]
    experiment_name: Speed[Text]


@selectable
class Wandb(Logger):
    """Logs to Weights & Biases, or into `wandb/` in the run's folder, from where `wandb sync` uploads it.

    Attributes:
        project: Name of the project.
        entity: Name of the user or the team; null for the default of the account.
        mode: `online` uploads during the run, `offline` writes files only.
    """

    path = "logger.wandb"
    writer = "etlrun.run.loggers:WandbWriter"
    package = "wandb"
    remedy = (
        "run `wandb login` or set WANDB_API_KEY, check the network, or set logger.mode=offline and `wandb sync` later"
    )

    project: Speed[Text]
    entity: Speed[OptionalText]
    mode: Speed[Literal["online", "offline"]]
