"""The one error hierarchy: a stable code, how HTTP and the WebSocket say it, and whether a retry can help."""

from typing import ClassVar


class NexusError(Exception):
    """Base of every error that Nexus raises on purpose.

    The message is written for the person who reads it: it names the field or file and the remedy,
    and holds no path, secret or internal name unless it is theirs.
    """

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    close_code: ClassVar[int] = 1011
    retry_helps: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        """When a retry can help at the earliest, if that is known."""


class InvalidInput(NexusError):
    """The caller sent something that cannot be served as it is."""

    code = "invalid_request"
    http_status = 400
    type = "invalid_request_error"
    close_code = 1008


class ContextLengthExceeded(InvalidInput):
    """Prompt and output do not fit into the model's context."""

    code = "context_length_exceeded"


class Unauthorized(NexusError):
    """No key, or a key that is not known."""

    code = "invalid_api_key"
    http_status = 401
    type = "authentication_error"
    close_code = 1008


class WrongCredentials(Unauthorized):
    """E-mail and password fit no account that may sign in; which of the two is wrong is not told."""

    code = "invalid_credentials"


class SessionOver(Unauthorized):
    """No session, or one that has ended: sign in."""

    code = "invalid_session"


class InsufficientQuota(NexusError):
    """The caller's budget cannot pay for this request. Not 429: a retry would not help."""

    code = "insufficient_quota"
    http_status = 402
    type = "insufficient_quota"


class Forbidden(NexusError):
    """The key is known, but may not do this."""

    code = "permission_denied"
    http_status = 403
    type = "permission_error"


class NotFound(NexusError):
    """No such model, route or object."""

    code = "not_found"
    http_status = 404
    type = "invalid_request_error"


class ModelNotFound(NotFound):
    """The model is not served here."""

    code = "model_not_found"


class Conflict(NexusError):
    """The request contradicts an earlier one."""

    code = "conflict"
    http_status = 409
    type = "invalid_request_error"


class PayloadTooLarge(NexusError):
    """The body is larger than the gateway accepts; decided before it is parsed."""

    code = "payload_too_large"
    http_status = 413
    type = "invalid_request_error"
    close_code = 1009


class RateLimited(NexusError):
    """This caller is over its own limit, or this node is refused for a time: see `cloud.api.broker.conduct`."""

    code = "rate_limit_exceeded"
    http_status = 429
    type = "rate_limit_error"
    close_code = 4005
    retry_helps = True


class Unavailable(NexusError):
    """No capacity, or the verifier cannot be reached."""

    code = "unavailable"
    http_status = 503
    type = "server_error"
    close_code = 1013
    retry_helps = True


class UpstreamFailed(NexusError):
    """The verifier failed while it worked on the request."""

    code = "upstream_error"
    http_status = 502
    type = "server_error"
    retry_helps = True


class ProtocolError(NexusError):
    """The other side broke the wire protocol (remote misuse)."""

    code = "protocol_error"
    http_status = 400
    type = "invalid_request_error"
    close_code = 1002


class VersionUnsupported(ProtocolError):
    """The two sides speak no common protocol version."""

    code = "version_unsupported"
    close_code = 4001


class ProofFailed(ProtocolError):
    """The node did not prove that it holds its key, or the key may not connect."""

    code = "proof_failed"
    close_code = 4003


class TokenizerMismatch(ProtocolError):
    """The node's draft model does not share the target model's tokenizer."""

    code = "tokenizer_mismatch"
    close_code = 4004


class NodeUnpaired(ProtocolError):
    """This gateway takes only nodes that belong to an account, and the node's key is paired with none."""

    code = "node_unpaired"
    close_code = 4006


class NodeRevoked(ProtocolError):
    """The node's key was revoked by its owner or by an operator."""

    code = "node_revoked"
    close_code = 4007


class LimitExceeded(ProtocolError):
    """A frame, a list or a queue is over its named limit."""

    code = "limit_exceeded"
    close_code = 1009


class LocalMisuse(NexusError):
    """Our own code asked the protocol core for something its state does not allow: a bug on this side."""

    code = "local_misuse"


class ModelError(NexusError):
    """A model cannot be found, fetched, checked or converted."""

    code = "model_error"


class ConfigError(NexusError):
    """A setting is missing or wrong; the message names it and the remedy."""

    code = "config_error"


class EngineError(NexusError):
    """A draft or target engine cannot start or has failed."""

    code = "engine_error"
