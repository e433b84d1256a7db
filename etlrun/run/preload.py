"""What the fork server of a run's own servers imports, once for all of them. Nothing here may start a thread."""

import os

from etlrun.run.backend import native_messages_kept, uncollected

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
with uncollected(), native_messages_kept():
    import etlrun.run.servers  # noqa: F401
