"""The one error of the local stack; its text says what is wrong and what to do."""

from lmerge.errors import LMergeError


class StackError(LMergeError):
    """The local stack cannot do what was asked: Java, a download, a port, or a broker that does not come up."""
