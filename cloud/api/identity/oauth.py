"""Errors in the shape of OAuth 2.0 (RFC 6749, 5.2), which the device flow has: a code, and words for the developer."""

from typing import Literal

Code = Literal[
    "invalid_request",
    "invalid_grant",
    "unsupported_grant_type",
    "authorization_pending",
    "slow_down",
    "access_denied",
    "expired_token",
]


class OAuthError(Exception):
    """Answered with status 400; RFC 8628, 3.5, says what a client does next. Not a `NexusError`: it has a shape of its
    own.
    """

    def __init__(self, code: Code, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
