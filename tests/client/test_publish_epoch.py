"""Publishing under one's own numbers: whatever is sent again, and whatever breaks, is stored once and in order."""

from __future__ import annotations

import pytest

import weft
from client.client_lab import Lab
from client.test_client_session import in_the_log
from client.test_client_session import publish as publish_by
from weft.broker.rules import Rights, Rules
from weft.client.effects import Stored
from weft.client.publisher import NotStored
from weft.client.session import ClientSession
from weft.errors import BrokerError, EventError, OptionError, PublishError
from weft.protocol.messages import MAX_EVENT, NewEpoch, Publish
from weft.testing import broker


def events(first, count):
    return [{"n": first + at} for at in range(count)]


def publish(address, epoch, some, session="query-0"):
    with weft.connect_sync(address, name=session, retry_for=0) as client:
        return client.publish_epoch(epoch, some)


def stored(local, count):
    with local.connect_sync() as client, client.subscribe("n >= 0", since=1) as found:
        return [next(found)["n"] for _ in range(count)]


def test_what_is_published_again_is_stored_once():
    with broker() as local:
        assert publish(local.address, 1, events(0, 3)) == 3
        assert publish(local.address, 1, events(0, 3)) == 0
        assert publish(local.address, 1, events(0, 5)) == 2  # a task that died after three
        assert publish(local.address, 3, events(5, 2)) == 2
        assert publish(local.address, 1, events(0, 5)) == 0  # an old micro-batch is complete
        assert publish(local.address, 3, events(5, 2), session="query-1") == 2
        assert stored(local, 9) == [0, 1, 2, 3, 4, 5, 6, 5, 6]


def test_many_events_are_confirmed():
    with broker() as local:
        assert publish(local.address, 1, events(0, 12_000)) == 12_000
        assert stored(local, 12_000) == list(range(12_000))


def test_a_broker_that_ends_meanwhile_has_what_it_confirmed(tmp_path):
    with broker(tmp_path / "data") as local:
        address = local.address

        def stopping():
            for place, event in enumerate(events(0, 4_000)):
                if place == 2_000:
                    local.kill()
                yield event

        with pytest.raises(BrokerError):
            publish(address, 1, stopping())
        with pytest.raises(BrokerError, match="no broker at"):
            publish(address, 1, events(0, 4_000))
        local.start()
        assert publish(address, 1, events(0, 4_000)) <= 4_000
        assert publish(address, 2, events(4_000, 1)) == 1
        assert stored(local, 4_001) == list(range(4_001))


def test_an_event_that_cannot_be_one_is_named_and_those_before_it_are_stored():
    with broker() as local:
        some = [*events(0, 1), weft.Event({"n": 1}, b"x" * MAX_EVENT), *events(2, 1)]
        with pytest.raises(EventError, match="event 1: ") as caught:
            publish(local.address, 1, some)
        assert caught.value.position == 1
        assert publish(local.address, 1, events(0, 3)) == 2
        assert stored(local, 3) == [0, 1, 2]


def test_an_event_that_the_broker_refuses_is_named_and_may_be_sent_again():
    with broker() as local:
        local.call(lambda node: node.set_rules(Rules({"": Rights(publish=("n != 1",), subscribe=("n >= 0",))})))
        with pytest.raises(PublishError, match="event 1: no rule allows this event") as caught:
            publish(local.address, 1, events(0, 3))
        assert sorted(caught.value.refused) == [1, 2]
        local.call(lambda node: node.set_rules(Rules({"": Rights(publish=("n >= 0",), subscribe=("n >= 0",))})))
        assert publish(local.address, 1, events(0, 3)) == 2
        assert publish(local.address, 2, events(1, 1)) == 1


def test_what_is_published_after_an_event_was_refused_is_refused_too():
    rules = Rules({"": Rights(publish=("n != 1",), subscribe=("n >= 0",))})
    with broker() as local:
        local.call(lambda node: node.set_rules(rules))
        with local.connect_sync(name="query-0") as client:

            def slow():
                yield from events(0, 2)
                client.status()  # what was asked for before is sent
                client.status()  # and answered
                yield from events(2, 2)

            with pytest.raises(PublishError, match="event 1: no rule allows this event") as caught:
                client.publish_epoch(1, slow())
            assert sorted(caught.value.refused) == [1, 2, 3]
        local.call(lambda node: node.set_rules(Rules({"": Rights(publish=("n >= 0",), subscribe=("n >= 0",))})))
        assert publish(local.address, 1, events(0, 4)) == 3
        assert stored(local, 4) == [0, 1, 2, 3]


def test_a_client_that_goes_on_after_a_lost_connection_stores_everything_once(tmp_path):
    with broker(tmp_path / "data") as local, local.connect_sync(name="query-0") as client:

        def restarting():
            for place, event in enumerate(events(0, 4_000)):
                if place == 2_000:
                    local.kill()
                    local.start()
                yield event

        assert client.publish_epoch(1, restarting()) == 4_000
        assert client.publish_epoch(1, events(0, 4_000)) == 0
        assert stored(local, 4_000) == list(range(4_000))


def test_epochs_need_a_name_and_a_client_of_their_own():
    with broker() as local:
        with local.connect_sync() as client, pytest.raises(OptionError, match="with a name"):
            client.publish_epoch(1, events(0, 1))
        with local.connect_sync(name="a") as client:
            for epoch in (0, -1, True, "1"):
                with pytest.raises(OptionError, match="above 0"):
                    client.publish_epoch(epoch, events(0, 1))
            client.publish_epoch(1, events(0, 1))
            with pytest.raises(OptionError, match="two clients"):
                client.publish({"n": 1})
        with local.connect_sync(name="b") as client:
            client.publish({"n": 1})
            with pytest.raises(OptionError, match="two clients"):
                client.publish_epoch(1, events(0, 1))


# -- without sockets ---------------------------------------------------------------------------------------------


def test_a_new_epoch_that_never_arrived_is_begun_by_the_next_hello():
    lab, session = Lab(), ClientSession("p")
    line = lab.connect(session)
    line.run()
    assert session.publisher.begin(5) == 0
    publish_by(session, 1, 2)
    line.flush()  # on its way, and lost
    line.cut()
    back = lab.connect(session)
    assert sum(len(each.events) for each in back.run() if isinstance(each, Stored)) == 2
    assert not [each for each in back.said if isinstance(each, NewEpoch)]
    assert (session.publisher.epoch, in_the_log(lab)) == (5, [1, 2])
    assert session.publisher.begin(5) == 2
    assert session.publisher.begin(4) is None


def test_everything_behind_a_refused_event_of_an_epoch_is_refused_under_its_number():
    lab, session = Lab(Rules({"": Rights(publish=("x != 2",))})), ClientSession("p")
    line = lab.connect(session)
    line.run()
    assert session.publisher.begin(1) == 0
    publish_by(session, 1, 2, 3)
    (refused,) = [each for each in line.run() if isinstance(each, NotStored)]
    assert (len(refused.events), refused.code) == (2, "access")
    assert [each.sequence for each in line.said if isinstance(each, Publish)] == [1, 2, 3]
    assert not [each for each in line.said if isinstance(each, NewEpoch)]
    with pytest.raises(LookupError, match="event 2 of epoch 1 was refused"):
        session.publisher.begin(1)
    line.cut()
    lab.connect(session).run()
    assert session.publisher.begin(1) == 1
