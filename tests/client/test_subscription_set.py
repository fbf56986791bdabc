"""Many filters as one subscription: each event once, with the filters that it matches; all or none."""

from __future__ import annotations

import asyncio

import pytest

import weft
from client.client_lab import Lab
from server.wire import PATIENCE, until
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.client.events import outgoing
from weft.client.session import ClientSession
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.client.subscription_handle import LABELLED, labelled_numbers
from weft.errors import AccessError, ClientClosedError, FilterError, OptionError
from weft.protocol.messages import Ack, QueueNumber, SubNumber, Subscribe
from weft.testing import broker

BOTH = {"low": "n < 10", "even": "n IN (2, 4, 12)"}


def facts(client, session):
    """The filters of a session, as the broker has them."""
    return sorted(each.filter for each in client.subscriptions(session))


def set_rules(local, *subscribe):
    local.call(lambda node: node.set_rules(Rules({"": Rights(subscribe=subscribe)})))


@pytest.mark.parametrize("name", ["", "numbers"])
def test_an_event_comes_once_and_says_which_filters_it_matches(name):
    async def body():
        async with broker() as local, local.connect() as client:
            async with client.subscribe_many(BOTH, name=name) as found:
                await found.complete()
                await client.publish_many({"n": n} for n in (1, 2, 11, 12))
                seen = []
                async for event in found:
                    seen.append((event["n"], event.matched))
                    await event.ack()
                    if len(seen) == 3:
                        break
                assert seen == [(1, ("low",)), (2, ("low", "even")), (12, ("even",))]
            async with client.subscribe_many(["n = 1", weft.F.n > 0]) as found:
                await client.publish({"n": 1})
                assert (await found.receive(PATIENCE)).matched == (0, 1)

    asyncio.run(body())


def test_one_filter_matches_by_its_name_or_text():
    with broker() as local, local.connect_sync() as client:
        some = client.subscribe("x = 1"), client.subscribe("x = 1", name="ones")
        shared = client.subscribe("x = 1", name="work", shared=True)
        client.publish({"x": 1})
        assert [each.receive(PATIENCE).matched for each in (*some, shared)] == [("x = 1",), ("ones",), ("work",)]


def test_another_process_goes_on_with_the_same_names_whatever_their_order():
    with broker() as local:
        with local.connect_sync() as client, client.subscribe_many(BOTH, name="numbers") as found:
            client.publish_many({"n": n} for n in (2, 12))
            found.receive(PATIENCE).ack()
        with local.connect_sync() as client:
            client.publish({"n": 3})
            with client.subscribe_many(dict(reversed(BOTH.items())), name="numbers") as found:
                some = [found.receive(PATIENCE) for _ in range(2)]
                assert [(each["n"], each.matched) for each in some] == [(12, ("even",)), (3, ("low",))]
                assert facts(client, "numbers") == sorted(BOTH.values())


def test_filters_that_a_later_process_leaves_out_end_and_those_that_change_keep_what_waits():
    with broker() as local:
        with local.connect_sync() as client, client.subscribe_many(BOTH, name="numbers"):
            client.publish_many({"n": n} for n in (5, 12))
        with local.connect_sync() as client:
            with client.subscribe_many({"low": "n < 3", "new": "n = 100"}, name="numbers") as found:
                client.publish_many({"n": n} for n in (5, 2, 100))
                seen = []
                while not seen or seen[-1][0] != 100:
                    event = found.receive(PATIENCE)
                    event.ack()
                    seen.append((event["n"], event.matched))
                assert [each for each in seen if each[0] != 12] == [(5, ("low",)), (2, ("low",)), (100, ("new",))]
                assert facts(client, "numbers") == ["n < 3", "n = 100"]
            with client.subscribe("n = 7", name="numbers") as found:  # one filter takes the name over
                client.publish_many({"n": n} for n in (100, 7))
                assert found.receive(PATIENCE)["n"] == 7
                assert facts(client, "numbers") == ["n = 7"]
            with client.subscribe_many({"seven": "n = 7"}, name="numbers") as found:  # and back
                client.publish({"n": 7})
                assert found.receive(PATIENCE).attempt in (1, 2)
                assert facts(client, "numbers") == ["n = 7"]


@pytest.mark.parametrize("name", ["", "numbers"])
def test_a_refused_filter_is_named_and_nothing_of_the_others_is_left(name):
    with broker() as local, local.connect_sync() as client:
        set_rules(local, "n < 100")
        with pytest.raises(AccessError, match=r"^filter 1 \(id 'high'\): .*the nearest rule is n < 100"):
            client.subscribe_many({"low": "n < 10", "high": "n > 50", "also": "n > 5"}, name=name)
        with pytest.raises(AccessError, match=r"^filter 1: "):
            client.subscribe_many(["n < 10", "n > 50"], name=name)
        while client.status().subscriptions:
            pass
        found = client.subscribe_many(BOTH, name=name)
        client.publish({"n": 2})
        assert found.receive(PATIENCE).matched == ("low", "even")


def test_what_cannot_be_filters_is_refused_where_it_is_written():
    client = weft.connect()
    with pytest.raises(FilterError, match=r"^filter 1 \(id 'bad'\): ") as caught:
        client.subscribe_many({"good": "x > 1", "bad": "x >"})
    assert (caught.value.position, caught.value.id) == (1, "bad")
    for wrong, why in [
        ("x > 1", "for one filter use subscribe"),
        (7, "for one filter use subscribe"),
        ({}, "no filter is given"),
        ({1: "x > 1"}, "names of filters are strings, not 1"),
    ]:
        with pytest.raises(OptionError, match=why):
            client.subscribe_many(wrong)


@pytest.mark.parametrize("name", ["", "numbers"])
def test_filters_are_replaced_as_a_whole_or_not_at_all(name):
    with broker() as local, local.connect_sync() as client, client.subscribe_many(BOTH, name=name) as found:
        found.replace({"even": "n IN (2, 4, 12)", "low": "n < 5", "high": "n IN (90, 99)"})
        client.publish_many({"n": n} for n in (7, 2, 99))
        assert [found.receive(PATIENCE).matched for _ in range(2)] == [("even", "low"), ("high",)]
        set_rules(local, "n < 1000")
        with pytest.raises(AccessError, match=r"^filter 1 \(id 'low'\)"):
            found.replace({"new": "n = 50", "low": "n > 8", "even": "n IN (6, 8)"})
        while name and facts(client, name) != sorted(found.filters.values()):
            pass  # another connection than that of the publisher
        client.publish_many({"n": n} for n in (50, 8, 6, 2, 99))
        assert [found.receive(PATIENCE).matched for _ in range(2)] == [("even", "low"), ("high",)]
        assert dict(found.filters) == {"even": "n IN (2, 4, 12)", "low": "n < 5", "high": "n IN (90, 99)"}
        assert repr(found).startswith("<weft.SyncSubscriptionSet")
        assert "3 filters" in repr(found)
        found.unsubscribe()
        assert client.status().subscriptions == 0
        with pytest.raises(ClientClosedError):
            found.receive(PATIENCE)


@pytest.mark.parametrize("name", ["", "numbers"])
def test_a_filter_that_is_revoked_ends_the_subscription_with_its_name(name):
    with broker() as local, local.connect_sync() as client:
        found = client.subscribe_many({"low": "n < 10", "high": "n > 50"}, name=name)
        set_rules(local, "n < 20")
        with pytest.raises(AccessError, match=r"filter 1 \(id 'high'\)"):
            found.receive(PATIENCE)
        client.publish({"n": 2})  # the client goes on


@pytest.mark.parametrize("name", ["", "numbers"])
def test_a_filter_that_was_left_out_comes_back_at_once(name):
    async def body():
        async with broker() as local, local.connect() as client, local.connect() as publisher:
            if name:  # an earlier client had two more
                async with client.subscribe_many({**BOTH, "third": "n = 3"}, name=name):
                    pass
            keeps = {"low": "n IN (2, 3, 5)", "one": "n = 1"}
            async with client.subscribe_many(keeps, name=name) as found:
                await publisher.publish({"n": 1})
                assert (await found.receive(PATIENCE))["n"] == 1  # and it is not acknowledged
                for n in range(20):
                    await publisher.publish({"n": 2})
                    others = {"even": "n IN (2, 4)", "one": "n = 1"}, {"third": "n = 3", **keeps}
                    await asyncio.gather(*map(found.replace, (*others, keeps)))
                    event = await found.receive(PATIENCE)
                    await event.ack()
                    assert event.offset == n + 2
                await found.complete()
                await publisher.publish({"n": 3})
                event = await found.receive(PATIENCE)
                await event.ack()
                assert event.matched == ("low",)
            if name:
                found = await publisher.subscribe_many(keeps, name=name)
                await publisher.publish({"n": 5})
                some = [(await found.receive(PATIENCE))["n"] for _ in range(2)]
                assert some == [1, 5], "the others are acknowledged"

    asyncio.run(body())


def test_very_many_filters_are_one_subscription():
    many = 3_000

    async def body():
        async with broker() as local, local.connect() as client:
            async with client.subscribe_many({f"n{n}": f"n = {n}" for n in range(many)}, name="all") as found:
                await found.complete()
                assert (await client.status()).subscriptions == many
                await client.publish_many({"n": n} for n in range(0, many, 500))
                async for event in found:
                    await event.ack()
                    assert event.matched == (f"n{event['n']}",)
                    if event["n"] == many - 500:
                        break
                await found.unsubscribe()
            assert (await client.status()).subscriptions == 0

    asyncio.run(body())


def test_dead_letters_and_failures_are_those_of_all_filters():
    limits = ClientLimits(failures=1)
    with broker(limits=limits) as local, local.connect_sync() as client:
        found = client.subscribe_many(BOTH, name="numbers")
        client.publish({"n": 2})
        found.receive(PATIENCE).nack("no")
        letters = []
        while not letters:
            letters = found.dead_letters.list()
        assert found.dead_letters.redeliver(letters[0].offset)
        again = found.receive(PATIENCE)
        assert again.matched == ("low", "even")
        again.ack()
        while found.dead_letters.list():
            pass


def test_numbers_follow_from_names_and_differ():
    labels = [f"label {n}" for n in range(2_000)] + [*range(2_000)]
    numbers = labelled_numbers(labels, {})
    assert len({*numbers.values()}) == len(labels)
    assert all(LABELLED <= number < 1 << 32 for number in numbers.values())
    assert labelled_numbers(labels[::-1], {}) == numbers
    clash = labelled_numbers(["a"], {"b": labelled_numbers(["a"], {})["a"]})
    assert clash["a"] == labelled_numbers(["a"], {})["a"] + 1


# -- without sockets -----------------------------------------------------------------------------------------------


def member(session, number, filter):
    options = SubscriptionOptions(durable=True)
    state = SubscriptionState(SubNumber(number), options, window=9, token=session.token, queue=QueueNumber(1))
    session.subscribe(state, SubscriptionRequest("subscribe", filter, "waiter"))
    return state


def test_acknowledgements_go_on_when_the_filter_that_had_them_ends():
    lab, session = Lab(), ClientSession("s")
    first, second = member(session, LABELLED, "n < 10"), member(session, LABELLED + 1, "n > 5")
    line = lab.connect(session)
    line.run()
    publisher = lab.connect(ClientSession("p"))
    publish(publisher, 7, 8)
    shown = [each.offset for notice in line.run() for each in getattr(notice, "messages", ())]
    assert shown == [1, 2]
    book = session.readers[QueueNumber(1)].book
    assert (first.book, second.book) == (book, None)
    book.ack([1])
    session.ask(first.number, SubscriptionRequest("unsubscribe", internal=True))
    line.run()
    session.check()
    assert (first.book, second.book) == (None, book)
    book.ack([2])
    line.run()
    assert [each.queue for each in line.said if isinstance(each, Ack)] == [1, 1]
    line.cut()
    again = lab.connect(session)
    assert not [each for notice in again.run() for each in getattr(notice, "messages", ())]
    assert not [each for each in again.said if isinstance(each, Subscribe)], "the broker has it"


def test_a_forgotten_queue_is_one_reset_and_every_filter_comes_back():
    lab, session = Lab(), ClientSession("s")
    member(session, LABELLED, "n < 10")
    member(session, LABELLED + 1, "n > 5")
    line = lab.connect(session)
    line.run()
    line.cut()
    gone = ClientSession("s")
    line = lab.connect(gone)
    line.run()
    gone.close(lab.now.monotonic, 1_000_000, forget=True)
    line.run()
    again = lab.connect(session)
    notices = again.run()
    assert sum(type(each).__name__ == "Missed" for each in notices) == 1
    assert len([each for each in again.said if isinstance(each, Subscribe)]) == 2
    session.check()


def publish(line, *ns):
    line.session.publisher.add([outgoing({"n": n}) for n in ns])
    line.run()


def test_filters_come_back_after_the_broker_was_away():
    async def body():
        async with broker() as local, local.connect() as client, client.subscribe_many(BOTH) as found:
            local.call(lambda node: [each.close() for each in [*node.connections.values()]])
            await until(lambda: client.connections > 1)
            await found.complete()
            await client.publish({"n": 2})
            assert (await found.receive(PATIENCE)).matched == ("low", "even")

    asyncio.run(body())
