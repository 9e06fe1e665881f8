"""Bodies of requests about accounts and nodes, and how these are shown."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cloud.api.audit.entry import Logged
from cloud.api.identity.account import Account, Role, ordered
from cloud.api.identity.grant import Grant
from cloud.api.identity.node import NAME_MAX, Node
from cloud.api.identity.session import NewSession, Session


def _visible(value: str) -> str:
    if not value.isprintable() or not value.strip():
        raise ValueError("it must have visible characters only")
    return value.strip()


Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX), AfterValidator(_visible)]
Email = Annotated[str, Field(min_length=3, max_length=254)]
Password = Annotated[str, Field(min_length=1, max_length=1024)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SignUpInput(_Body):
    """A new account."""

    email: Email
    password: Password
    name: Name | None = None
    roles: Annotated[list[Role], Field(min_length=1)] | None = None


class SignInInput(_Body):
    """Who signs in."""

    email: Email
    password: Password


class PasswordInput(_Body):
    """The password in force, and the one that takes its place."""

    current: Password
    password: Password


class NodeInput(_Body):
    """What an owner may change of a node."""

    name: Name


class UserCodeInput(_Body):
    """The code that a machine shows."""

    user_code: Annotated[str, Field(min_length=1, max_length=40)]


class AccountInput(_Body):
    """A new account, made by an operator."""

    email: Email
    name: Name | None = None
    roles: Annotated[list[Role], Field(min_length=1)]
    password: Password | None = None


class AccountChangeInput(_Body):
    """What an operator may change; what is not given stays."""

    roles: Annotated[list[Role], Field(min_length=1)] | None = None
    disabled: bool | None = None


def account_object(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "object": "account",
        "email": account.email,
        "name": account.name,
        "roles": ordered(account.roles),
        "state": str(account.state),
        "created_at": account.created_at,
    }


def session_object(session: Session, current: str | None = None) -> dict[str, Any]:
    """`current`: the id of the session that asks."""
    return {
        "id": session.id,
        "object": "session",
        "client": session.client,
        "created_at": session.created_at,
        "expires_at": session.expires_at,
        "ended_at": session.ended_at,
        "current": session.id == current,
    }


def new_session_object(account: Account, new: NewSession) -> dict[str, Any]:
    """With the token, which is shown this once."""
    session = session_object(new.session, new.session.id)
    return {"object": "sign_in", "token": new.token, "session": session, "account": account_object(account)}


def node_object(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "object": "node",
        "name": node.name,
        "owner": node.owner,
        "public_key": node.public_key.hex(),
        "state": str(node.state),
        "paired_at": node.paired_at,
        "revoked_at": node.revoked_at,
    }


def pairing_object(grant: Grant) -> dict[str, Any]:
    """What a person sees before approving: everything that the node says of itself, and where it asked from."""
    return {
        "object": "pairing",
        "user_code": grant.user_code,
        "node": grant.node,
        "name": grant.name,
        "address": grant.address,
        "state": str(grant.state),
        "created_at": grant.created_at,
        "expires_at": grant.expires_at,
    }


def audit_object(logged: Logged) -> dict[str, Any]:
    entry = logged.entry
    return {
        "seq": logged.seq,
        "object": "audit_entry",
        "at": entry.at,
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "detail": dict(entry.detail),
    }
