"""Which part of a broker a message is for. Law: a message that cannot be granted is answered, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.broker.advertising import Advertising
from weft.broker.dead_letters import Dead
from weft.broker.effects import Now
from weft.broker.explaining import Explaining
from weft.broker.greeting import Greeting
from weft.broker.link_messages import LINK_MESSAGES, IncomingMessage
from weft.broker.messages import (
    Ack,
    Advertise,
    AskStatus,
    DropDead,
    Explain,
    Failed,
    Goodbye,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Pong,
    Replace,
    RetryDead,
    StatusReport,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from weft.broker.queue import Queue
from weft.broker.requests import REFUSALS, RefusalError, code_of, session_of
from weft.broker.sessions import Connection
from weft.broker.sharing import SharedQueues
from weft.broker.status import BrokerStatus
from weft.broker.subscribing import Subscribing

_encode = msgspec.msgpack.Encoder().encode


class Dispatch:
    """Hands the messages of clients on, all but events."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a broker
        self,
        greeting: Greeting,
        dead: Dead,
        subscribing: Subscribing,
        sharing: SharedQueues,
        advertising: Advertising,
        explaining: Explaining,
        status: Callable[[int], BrokerStatus],
    ) -> None:
        self._status = status
        self._explaining = explaining
        self._greeting = greeting
        self._dead = dead
        self._subscribing, self._sharing, self._advertising = subscribing, sharing, advertising
        self._delivery, self._publishing = subscribing.delivery, subscribing.publishing
        self._state = subscribing.state

    def handle(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        """Do what a message asks for. The first one must be a hello."""
        if connection.session is None or type(message) is Hello:
            if connection.session is None and type(message) is Hello:
                self._greeting.hello(connection, message, now)
            else:
                self._greeting.close(connection, "protocol", "a connection begins with one hello", now)
            return
        if type(message) in LINK_MESSAGES:
            self._greeting.close(connection, "protocol", "this connection is not a link", now)
            return
        if type(message) is Ack:
            self._dead.acknowledged(connection, message)
            self._delivery.ack(connection, message)
            return
        match message:
            case Nack():
                self._dead.nack(connection, message, now)
            case Ping():
                self._state.out.send(connection.id, Pong(message.token))
            case NewEpoch():
                try:
                    self._publishing.new_epoch(connection, message)
                except LookupError as error:
                    self._greeting.close(connection, "protocol", str(error.args[0]), now)
            case Goodbye():
                session = connection.session
                if message.forget and session.durable:
                    self._greeting.forget(session)
                else:
                    self._greeting.close(connection, "goodbye", "the client said goodbye", now)
            case _:
                self._request(connection, message, now)

    def _inform(self, connection: Connection, message: AskStatus | Explain, now: Now) -> None:
        """Say how the broker is, or where an event goes."""
        if isinstance(message, Explain):
            self._publishing.match(now)
            self._explaining.ask(connection, message, now)
            return
        self._state.rules.of(connection.principal).check("status")
        body = msgspec.Raw(_encode(self._status(message.queues)))
        self._state.out.send(connection.id, StatusReport(message.request, body))

    def _request(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        """A request that may fail, and then changes nothing."""
        about, number = "", 0
        try:
            if connection.requests is not None and not connection.requests.take(now.monotonic):
                about, number = _named(message)
                raise RefusalError(
                    "rate", f"more than {self._state.limits.requests:g} requests per second; try again later"
                )
            if session_of(connection).leaving:
                about, number = _named(message)
                raise RefusalError("leaving", "the session is being removed")
            match message:
                case Subscribe():
                    about, number = "subscribe", message.number
                    if message.share and self._greeting.home is not None:
                        raise RefusalError("share", "a broker with several workers has no shared names; run one worker")
                    if message.share:
                        wanted = self._subscribing.check_new(connection, message)
                        self._sharing.subscribe(connection, message, wanted, now)
                    else:
                        self._subscribing.subscribe(connection, message, now)
                case Replace():
                    about, number = "replace", message.number
                    self._subscribing.replace(connection, message, now)
                case Unsubscribe():
                    about, number = "unsubscribe", message.number
                    sub = self._subscribing.known(session_of(connection), message.number)
                    if isinstance(sub.queue, Queue) and sub.queue.share:
                        self._sharing.unsubscribe(connection, sub, now)
                    else:
                        self._subscribing.unsubscribe(connection, message, now)
                case Advertise():
                    about, number = "advertise", message.number
                    self._advertising.advertise(connection, message, now)
                case Unadvertise():
                    about, number = "unadvertise", message.number
                    self._advertising.unadvertise(connection, message, now)
                case AskStatus() | Explain():
                    about, number = _named(message)
                    self._inform(connection, message, now)
                case ListDead():
                    about, number = "list dead", message.request
                    self._dead.list(connection, message)
                case RetryDead():
                    about, number = "retry dead", message.request
                    self._dead.retry(connection, message)
                case DropDead():
                    about, number = "drop dead", message.request
                    self._dead.drop(connection, message)
        except REFUSALS as error:
            self._state.counts[f"failed: {about}"] += 1
            self._state.out.send(connection.id, Failed(about, number, code_of(error), str(error)))


_ABOUT = {ListDead: "list dead", RetryDead: "retry dead", DropDead: "drop dead", AskStatus: "status"}


def _named(message: IncomingMessage) -> tuple[str, int]:
    """What a request is about, as its answer says it."""
    about = _ABOUT.get(type(message))
    return about or type(message).__name__.lower(), getattr(message, "number", getattr(message, "request", 0))
