"""What the fork server of a run imports. Nothing here may start a thread."""

import os

from etlrun.run.loading import loading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
with loading():
    import etlrun.run.service.processes  # noqa: F401
