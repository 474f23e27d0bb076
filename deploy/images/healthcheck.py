"""Run as a script, by a container's health check: ask an address; exit code 0 if the answer is 200.

Without an address it is always 0: who answers nobody is well while it runs, and no check is made of one that does not.

It stands alone and takes 50 ms: it runs every few seconds in every container, where nothing but Python is sure to be.
"""

import http.client
import sys
from urllib.parse import urlsplit

SECONDS = 8.0
"""Less than the health check's own patience, so that it is this script which says what is wrong."""


def main() -> None:
    """Ask the address that is the one argument, if there is one, and print what it says."""
    if len(sys.argv) == 1:
        return
    address = urlsplit(sys.argv[1])
    try:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=SECONDS)
        connection.request("GET", address.path or "/")
        answer = connection.getresponse()
        text = answer.read(500).decode(errors="replace").strip()
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    print(answer.status, text)
    sys.exit(0 if answer.status == http.client.OK else 1)


if __name__ == "__main__":
    main()
