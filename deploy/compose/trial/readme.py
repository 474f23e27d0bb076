"""What the README tells a user of docker compose to type, as one script."""

import re

from deploy.local.errors import StackError


def script(readme: str, *, api_port: int, kafka_port: int) -> str:
    """Return the status command, the calls of the API and the consumer, as the README has them but for the ports.

    A consumer goes on for ever, and curl is content with an error: the first ends after some records, the second not.

    Raises:
        StackError: the README does not have them any more.
    """
    status = re.search(r"^    (docker compose exec merge-1 lmerge status .*?) +#", readme, re.MULTILINE)
    calls = re.search(r"^```sh\n(export .*?)^```", readme, re.MULTILINE | re.DOTALL)
    consumer = re.search(r"^(kcat .*)$", readme, re.MULTILINE)
    if status is None or calls is None or consumer is None:
        raise StackError("README.md lacks one of: lmerge status by docker compose exec, the calls by curl, kcat")
    text = "\n".join([status[1], calls[1].replace("curl -sS", "curl -sS --fail"), f"{consumer[1]} -c 3"])
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{api_port}").replace("127.0.0.1:9092", f"127.0.0.1:{kafka_port}")
