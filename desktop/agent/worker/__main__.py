"""`python -m desktop.agent.worker FD PARENT`: serve the agent on an inherited socket; not meant to be run by hand."""

import os
import socket
import sys

from desktop.agent.worker.channel import Channel, die_with_parent
from desktop.agent.worker.loop import serve


def main() -> None:
    if len(sys.argv) != 3 or not all(argument.isdigit() for argument in sys.argv[1:]):
        sys.exit("The draft worker is started by the agent: use `nexus agent run`.")
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    os.set_inheritable(fd, False)
    status = serve(Channel(socket.socket(fileno=fd)))
    sys.stdout.flush()
    sys.stderr.flush()
    # Engines leave threads and exit hooks behind that can hang; nothing here needs them.
    os._exit(status)


if __name__ == "__main__":
    main()
