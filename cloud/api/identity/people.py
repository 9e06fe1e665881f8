"""Accounts, sign-in and sessions over one store."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from cloud.api.accounts.keys import digest
from cloud.api.audit.entry import Actor, Entry
from cloud.api.identity.account import (
    Account,
    AccountChange,
    AccountEvent,
    AccountState,
    Role,
    advance,
    created,
    email_of,
    new_account,
    with_password,
    with_roles,
)
from cloud.api.identity.attempts import Attempts, network_of
from cloud.api.identity.passwords import Passwords
from cloud.api.identity.ports import IdentityStore
from cloud.api.identity.rules import wrong_credentials
from cloud.api.identity.session import NewSession, Session, SessionState, new_session
from cloud.api.identity.settings import IdentitySettings
from shared.errors import Conflict, Forbidden, InvalidInput, NotFound, SessionOver
from shared.ids import AccountId


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who a session's token belongs to."""

    account: Account
    session: Session


class People:
    """`clock` gives seconds since 1970, `monotonic` those by which attempts come back."""

    def __init__(
        self,
        store: IdentityStore,
        passwords: Passwords,
        settings: IdentitySettings,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`tell` is called when keys or nodes may have ended with an account's change."""
        self._tell = tell
        self._store = store
        self._passwords = passwords
        self._settings = settings
        self._clock = clock
        window_s, what = settings.attempts_window_s, "attempts to sign in"
        self._by_account = Attempts(settings.attempts_per_account, window_s, monotonic, what)
        self._by_address = Attempts(settings.attempts_per_address, window_s, monotonic, what)

    async def sign_up(
        self, email: str, password: str, name: str, roles: Iterable[Role], *, address: str, client: str
    ) -> tuple[Account, NewSession]:
        """A new account, signed in. Raises `Forbidden` where accounts are made by the operator only."""
        if not self._settings.sign_up:
            raise Forbidden("Accounts are made by this gateway's operator, with `nexus accounts create`.")
        if "operator" in (wanted := set(roles)):
            raise InvalidInput("Nobody can make themselves an operator.", param="roles")
        self._by_address.take(network_of(address))
        account = new_account(email, name, wanted, self._clock(), await self._passwords.hash(password))
        await self._store.add_account(account, created(account, Actor(account.id)))
        return account, await self._begin(account, client)

    async def sign_in(self, email: str, password: str, *, address: str, client: str) -> tuple[Account, NewSession]:
        """Raises `WrongCredentials` whatever of both was wrong, after the same work, and `RateLimited`."""
        email = email_of(email)
        network = network_of(address)
        self._by_address.take(network)
        self._by_account.take(email)
        account = await self._store.account_of(email)
        verdict = await self._passwords.verify(password, account.password if account else None)
        if account is None or not verdict.right or not account.active:
            raise wrong_credentials()
        new = await self._begin(account, client)
        self._by_address.give_back(network)
        self._by_account.give_back(email)
        if verdict.renewed is not None and account.password is not None:
            await self._store.renew_password(account.id, account.password, verdict.renewed)
        return account, new

    async def who(self, token: str) -> SignedIn:
        """Whose session this is. Raises `SessionOver`."""
        found = await self._store.session(digest(token.encode()))
        if found is None:
            raise SessionOver("This session is not known here. Sign in at `/v1/account/sign-in`.")
        session, account = found
        match session.state(self._clock()):
            case SessionState.EXPIRED:
                raise SessionOver("This session has expired. Sign in again.")
            case SessionState.ENDED:
                raise SessionOver("This session has ended. Sign in again.")
            case SessionState.ACTIVE if account.active:
                return SignedIn(account, session)
            case _:
                raise SessionOver("This account is disabled. Ask the operator.")

    async def sessions(self, account: AccountId) -> Sequence[Session]:
        """Active ones, newest first."""
        return await self._store.sessions(account, self._clock())

    async def end_session(self, account: AccountId, session: str, by: Actor) -> Session:
        """Raises `NotFound` when the account has no such session."""
        at = int(self._clock())
        entry = Entry(at=at, actor=by, action="session.ended", subject=session, detail={"account": account})
        ended = await self._store.end_session(account, session, at, entry)
        if ended is None:
            raise NotFound("There is no session with this id.")
        return ended

    async def change_password(self, signed_in: SignedIn, current: str, new: str) -> Account:
        """All other sessions end. Raises `WrongCredentials` when `current` is not the password."""
        account = signed_in.account
        self._by_account.take(account.email)
        hashed = await self._passwords.hash(new)
        if not (await self._passwords.verify(current, account.password)).right:
            raise wrong_credentials()
        self._by_account.give_back(account.email)

        def decide(found: Account) -> AccountChange:
            if found.password != account.password:
                raise Conflict("The password has been changed meanwhile. Sign in again.")
            return with_password(found, hashed, Actor(account.id), self._clock(), keep=signed_in.session.id)

        return await self._change(account.id, decide)

    # --- for operators ---------------------------------------------------------------------------

    async def create(self, email: str, name: str, roles: Iterable[Role], password: str | None, by: Actor) -> Account:
        """Raises `Conflict` when the e-mail address has an account. Without a password nobody can sign in yet."""
        hashed = None if password is None else await self._passwords.hash(password)
        account = new_account(email, name, roles, self._clock(), hashed)
        await self._store.add_account(account, created(account, by))
        return account

    async def find(self, id_or_email: str) -> Account:
        """Raises `NotFound`."""
        if "@" in id_or_email:
            found = await self._store.account_of(email_of(id_or_email))
        else:
            found = await self._store.account(AccountId(id_or_email))
        if found is None:
            raise NotFound(f"There is no account {id_or_email[:60]!r}.")
        return found

    async def list(self, limit: int, after: AccountId | None = None) -> Sequence[Account]:
        return await self._store.accounts(limit, after)

    async def set_password(self, account: AccountId, password: str, by: Actor) -> Account:
        """All sessions end."""
        hashed = await self._passwords.hash(password)
        return await self._change(account, lambda found: with_password(found, hashed, by, self._clock()))

    async def set_roles(self, account: AccountId, roles: Iterable[Role], by: Actor) -> Account:
        return await self._change(account, lambda found: with_roles(found, roles, by, self._clock()))

    async def set_disabled(self, account: AccountId, disabled: bool, by: Actor) -> Account:
        """Disabling ends sessions, keys and nodes, for good. The same again changes nothing."""
        wanted = AccountState.DISABLED if disabled else AccountState.ACTIVE

        def decide(found: Account) -> AccountChange:
            if found.state is wanted:
                return AccountChange(account=found, entry=None)
            event = AccountEvent.DISABLE if disabled else AccountEvent.ENABLE
            return advance(found, event, by, self._clock())

        return await self._change(account, decide)

    async def _begin(self, account: Account, client: str) -> NewSession:
        new = new_session(account.id, client, self._clock(), self._settings.session_s)
        session = new.session
        detail = {"account": account.id}
        entry = Entry(
            at=session.created_at, actor=Actor(account.id), action="session.began", subject=session.id, detail=detail
        )
        await self._store.add_session(new, self._settings.sessions, entry)
        return new

    async def _change(self, account: AccountId, decide: Callable[[Account], AccountChange]) -> Account:
        changed = await self._store.change_account(account, decide, int(self._clock()))
        if self._tell is not None:
            await self._tell()
        return changed
