"""What the fork server of a run imports. Nothing here may start a thread."""

import os

from etlrun.run.backend import native_messages_kept, uncollected

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
with uncollected(), native_messages_kept():
    import etlrun.run.service.processes  # noqa: F401
