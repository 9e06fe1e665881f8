"""Keys of the draft port: over TCP, only gateways whose public key is on file may connect."""

from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Curve:
    """A server's key pair and the folder of its clients' public keys, in ZeroMQ's certificate format."""

    secret_file: Path
    clients: Path

    def install(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> ThreadAuthenticator:
        """Makes the socket a CURVE server; the returned authenticator must be stopped.

        Raises:
            ConfigError: the key file or the folder cannot be used.
        """
        try:
            public, secret = zmq.auth.load_certificate(self.secret_file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--draft-port-secret {self.secret_file}: {error}") from error
        if secret is None:
            raise ConfigError(f"--draft-port-secret {self.secret_file}: the file holds no secret key.")
        if not self.clients.is_dir():
            raise ConfigError(f"--draft-port-clients {self.clients}: no such folder.")
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve(domain="*", location=str(self.clients))
        socket.curve_publickey, socket.curve_secretkey = public, secret
        socket.curve_server = True
        return authenticator
