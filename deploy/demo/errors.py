"""Why a demo cannot go on; the text says what to do."""

from lmerge.errors import LMergeError


class DemoError(LMergeError):
    """A part ended by itself, something did not come true in time, or an answer makes no sense."""
