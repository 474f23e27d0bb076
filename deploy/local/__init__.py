"""A real Apache Kafka on this machine, without Docker: for tests, the demo and benchmarks.

`python -m deploy.local` is the command line, `LocalStack` the same from Python:

    with LocalStack() as stack:
        client = Producer({"bootstrap.servers": stack.bootstrap_servers})

The package speaks just enough of Kafka's protocol to know when a broker is ready; clients come from `lmerge.kafka`.
"""

from deploy.local.errors import StackError
from deploy.local.stack import LocalStack

__all__ = ["LocalStack", "StackError"]
