"""Programs of the matrix that once showed a fault of the consumer, each named after what must hold."""

import pytest

from .programs import Call, During, End, Event, Program, Read
from .runner import run

FOUND = {
    "a JoinGroup that is sent after a block longer than the session keeps nothing ours": Program(
        (Call("enforce_rebalance"), Event("blocked_for_long")), protocol="cooperative", listener=1.0
    ),
    "a revocation that max_poll_interval_ms overtakes is a loss": Program(
        (Read(), Event("taken", wait=0.1), Event("idle_for_long"), Read("getarrow")), protocol="consumer"
    ),
    "nothing of a lost partition is read by one task while another waits for an earlier call-back": Program(
        (Event("rebalance"), Event("idle_for_long"), During(Read(only=1), Read("iterate", 7))), protocol="cooperative"
    ),
    "a record that was refused is not raised after the session is over": Program(
        (Read("getone", 4, only=0), Event("blocked_for_long")), protocol="cooperative", poison=(4,)
    ),
    "a commit that is under way does not put the next one off": Program(
        (Read("getmany"), Event("blocked_for_long"), During(Read(), Event("due", wait=0.1), 0.005), Read("iterate")),
        protocol="manual",
    ),
    "what one task held before a loss does not excuse what another one holds after it": Program(
        (During(Read("iterate"), Read()), Event("blocked_for_long", wait=4.0), Read(), End("error")),
        protocol="consumer",
        backend="trio",
    ),
    "a deserializer that may try again fails nobody who has sought elsewhere meanwhile": Program(
        (Read("iterate"), During(Read("getmany"), Call("seek_to_end", offset=5), 0.005)), protocol="consumer", flaky=(0,), slow=0.01
    ),
    "what another task was at as its partition began to leave is committed once that task is done": Program(
        (During(Read("iterate"), Event("taken_and_given_back", 1, wait=0.1), 0.3), Call("seek_to_beginning")),
        protocol="consumer",
        commit_takes=0.5,
    ),
    "what one task holds is not committed by another one that gives it up": Program(
        (Read("iterate", 6), During(Read(only=0), Event("taken_and_given_back", 1))), protocol="consumer", records=6, listener=1.0
    ),
    "a partition that unsubscribe gives up is not assigned any more": Program(
        (Call("resubscribe"), Call("seek_to_timestamp", offset=1), Call("resubscribe")), protocol="cooperative", listener=0.05
    ),
    "what was assigned by hand while unsubscribe gave partitions up is gone with the next unsubscribe": Program(
        (Call("reassign", offset=3), Call("resubscribe"))
    ),
    "where it was sought in what was assigned by hand while unsubscribe gave partitions up is committed": Program(
        (Read("iterate"), Call("reassign"), Call("seek_to_timestamp"), Call("resubscribe")), protocol="consumer", listener=1.0
    ),
    "what a group took away can be committed once it is assigned by hand": Program(
        (
            Event("taken_and_given_back", 1, wait=0.1),
            Event("given_back", wait=4.0),
            Call("reassign", offset=6),
            Call("commit_offsets", 1, 3),
        ),
        protocol="consumer",
    ),
    "unsubscribing while a loss waits says that the partitions are lost": Program(
        (Event("idle_for_long", wait=4.0), Call("resubscribe", offset=7)), protocol="cooperative"
    ),
    "a place that was sought in the former topic is not committed for the new one": Program(
        (Call("seek", offset=3), Event("made_anew")), protocol="consumer"
    ),
    "no error is raised for a time in which a partition was paused": Program(
        (Read("getmany"), Call("commit"), Call("pause"), Event("unreadable"), Event("idle_for_long"), Read(only=1)),
        protocol="manual",
        records=6,
        schedule=51985,
    ),
    "a task whose end nobody can see holds up no interval": Program(
        (Read("iterate", 2, 1), Read("getone", 7, 0), During(Read("getarrow", only=0), Read("iterate"), 0.3)),
        records=6,
        backend="trio",
    ),
    "half-open connections cost no membership": Program(
        (Read("getmany", 3), Event("half_open"), Read("iterate", 2), Event("half_open"), Call("commit")), protocol="consumer"
    ),
    "a leave that nobody answers keeps nobody awake": Program((Call("reassign", offset=5), Event("half_open"))),
    "a commit that was given up for a later one does not arrive after it by another connection": Program(
        (
            Read("getmany"),
            Event("half_open", wait=0.1),
            During(Read(only=1), Call("enforce_rebalance", offset=1)),
            Call("commit", offset=7),
        ),
        protocol="cooperative",
        schedule=179,
    ),
    "what unsubscribe commits is stored though the generation ends meanwhile": Program(
        (Read("getarrow"), Call("enforce_rebalance"), End("unsubscribe_and_stop")), protocol="cooperative"
    ),
    "what a task has in hand of a topic that was made anew is not committed by another one that stops": Program(
        (
            Read("getmany"),
            Event("made_anew"),
            Read("getmany", 3, 0),
            Read("iterate", 2, 0),
            Read("getarrow"),
            End("stop_elsewhere"),
        ),
        protocol="manual",
        records=6,
        plain=True,
    ),
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND.keys())
def test_what_was_found_once_holds(program: Program) -> None:
    assert run(program) == []
