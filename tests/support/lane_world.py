"""A random world around a production lane: replicas that write, a broker that forgets, owners that die.

    world = LaneWorld(random.Random(seed), "R3", "half_frozen")
    world.run()             # raises if anything is wrong

Replicas present one logical stream. They come late with junk below their joins_at, begin anew, skip, break their
contract, are paused, leave and come back, and their topics may hold void incarnations. The lane's owner crashes at any
moment, or goes on as a zombie while another takes over. After each commit the logs are cut to exactly the committed
safe positions: whoever wants to read below them fails.

What is checked: every committed prefix is legal, `joined` in every record is true, every signal rests on a committed
stable, no innocent input is stopped, what a successor rebuilds is what its predecessor knew at the commit, and in the
end the merged stream is the reference. An input that is joined in the *committed* record is always left (E21), else
events may be lost for good.
"""

import random
from collections.abc import Callable
from typing import Any

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Hello, Insert, Skip
from lmerge.canonical import payload
from lmerge.codec import decode_batch, encode
from services.merge.definitions import Attachment, InputDefinition, Release
from services.merge.lane import POSITIONS_MS
from services.merge.lane_record import LaneRecord
from tests.support.lane_owner import Broker, Owner, Refused
from tests.support.lane_replica import HORIZON, Reference, Replica
from tests.support.memory_log import Log


class LaneWorld:
    """One lane and everything around it."""

    def __init__(self, rng: random.Random, algorithm: str, policy: str = "", *, formed: bool = False) -> None:
        self.rng = rng
        self.reference = Reference(rng, algorithm, policy, formed=formed)
        self.config = self.reference.config
        self.origin = self.reference.origin
        self.broker = Broker()
        self.wanted: dict[str, Attachment] = {}
        self.replicas: dict[str, Replica] = {}
        self.tdb = TDB()
        self.now_ms = 1
        self.crashes = 0
        self._ids = iter(range(10**9))
        self._actions = _ACTIONS + rng.choice(_THEMES)  # something happens more often than in other worlds
        self._judged = 0  # how far the merged topic has been judged
        self.zombie: Owner | None = None
        for late in (False, *(rng.random() < 0.4 for _ in range(rng.choice([0, 1, 1, 2])))):
            self._attach(self._new_replica(self._late() if late else self.origin))
        self.owner = self._take_over()

    # -- what happens

    def run(self) -> None:
        """Let things happen, then let everything be read, and judge."""
        if self.rng.random() < 0.8:
            self._warm_up()
        for _ in range(self.rng.choice([5, 15, 25, 35])):
            self.rng.choice(self._actions)(self)
        self.finish()

    def _warm_up(self) -> None:
        """Let the merged stable begin to move, since less can go wrong before and after."""
        for _ in range(10):
            if self.owner.lane.merge.max_stable > MINUS_INFINITY:
                self._commit()
                return
            self._poll()

    def _write(self) -> None:
        replica = self.replicas[self.rng.choice(list(self.replicas))]
        replica.write_pending(self.rng.choice([1, 3, 8]), markers=self.rng.choice([0, 0, 1, 2]))

    def _poll(self) -> None:
        self._poll_as(self.owner)

    def _poll_as(self, owner: Owner) -> None:
        topics = [each.definition.topic for each in self.wanted.values()]
        if self.rng.random() < 0.5:
            topics = [self.rng.choice(topics)]  # so that others fall behind
        counts = {topic: self.rng.choice([1, 1, 2, 3, 5, 9]) for topic in topics}
        for topic, count in counts.items():
            if self.rng.random() < 0.7:
                self.replicas[topic].write_pending(count, markers=self.rng.choice([0, 0, 1, 2]))
        owner.poll(counts, now_ms=self.now_ms)

    def _commit(self) -> None:
        self.now_ms += self.rng.choice([10, 10, 1500, 4000])
        if self.rng.random() < 0.1:
            self.owner.prepare(now_ms=self.now_ms)  # a commit that timed out is tried again
        prepared = self.owner.commit(markers=self.rng.choice([1, 2]), now_ms=self.now_ms)
        if prepared is None:
            return
        self._judge(prepared.record)
        self._retain(prepared.record)
        if self.rng.random() < 0.3:
            self.check_rebuilt()

    def _crash(self) -> None:
        self.crashes += 1
        if self.rng.random() < 0.2:
            self.owner.prepare(now_ms=self.now_ms)  # the transaction is aborted (E22)
        self.owner = self._take_over()

    def _leave_zombie(self) -> None:
        """Let somebody take over from an owner that is not dead; what that tries to commit meanwhile is refused."""
        self.crashes += 1
        old = self.owner
        self.owner = self._take_over(meanwhile=lambda: self._try(old))
        old.may_be_gone = lambda topic, offset: True  # noqa: ARG005  # what it wants to read may be cut
        self.zombie = old

    def _zombie(self) -> None:
        if self.zombie is not None:
            self._poll_as(self.zombie)
            self._try(self.zombie)

    def _try(self, old: Owner) -> None:
        """Let an owner try to commit: nobody reads what comes of it, so that it shows if it is not refused."""
        try:
            old.commit(now_ms=self.now_ms)
        except Refused:
            return

    def _take_over(self, **options: Any) -> Owner:
        owner = Owner.take_over(self.broker, self.config, self.wanted, **options)
        owner.may_be_gone = lambda topic, offset: offset < self.replicas[topic].lost_below
        self._judge_signals()
        return owner

    # -- inputs come, go and change

    def _new_replica(self, joins_at: int) -> Replica:
        rng = self.rng
        topic = f"t{next(self._ids)}"
        body = self.reference.present(joins_at)
        replica = self.replicas[topic] = Replica(topic, Log(), body)
        draw = rng.random()
        if joins_at > MINUS_INFINITY and draw < 0.2:  # a foreign producer, which says no hello, on an old topic
            replica.log = Log(low=rng.randrange(1, 9))
            replica.joins_at = joins_at
            del body[0]
        elif draw < 0.45:  # something void comes first
            replica.write(self.reference.void())
            if rng.random() < 0.3:
                replica.log.append([b"{"])
            replica.begin_anew(joins_at, body, markers=rng.choice([0, 1]))
        self.broker.topics[topic] = replica.log
        replica.write_pending(rng.choice([0, 0, 5, 20]))
        return replica

    def _late(self) -> int:
        return self.rng.randrange(5, HORIZON + 5)

    def _say_hello(self, replica: Replica, joins_at: int) -> None:
        replica.begin_anew(joins_at, self.reference.present(joins_at), markers=self.rng.choice([0, 1]))

    def _attach(self, replica: Replica) -> None:
        name = self.rng.choice([name for name in ("r1", "r2", "r3", "r4") if name not in self.wanted])
        replica.sure_from = -1  # the lane looks for the newest incarnation
        definition = InputDefinition(topic=replica.topic, joins_at=replica.joins_at)
        self.wanted[name] = Attachment(attachment=f"{name}/{next(self._ids)}", definition=definition)

    def _attach_one(self) -> None:
        if len(self.wanted) >= 4:
            return
        used = {each.definition.topic for each in self.wanted.values()}
        free = [replica for replica in self.replicas.values() if replica.topic not in used]
        if free and self.rng.random() < 0.6:
            replica = self.rng.choice(free)
            if replica.tainted or replica.log.low > 0 or self.rng.random() < 0.4:
                joins_at = self.rng.choice([self.origin, self._late()])
                replica.joins_at = None
                self._say_hello(replica, joins_at)
        else:
            replica = self._new_replica(self.rng.choice([self.origin, self._late()]))
        self._attach(replica)
        self.owner.follow(self.wanted)

    def replica_of(self, name: str) -> Replica:
        """Return the replica behind an input."""
        return self.replicas[self.wanted[name].definition.topic]

    def is_joined(self, name: str) -> bool:
        """Tell whether an input may be the last one, by what the outside can see (E21)."""
        record = self.broker.record
        each = None if record is None else record.inputs.get(name)
        replica, wanted = self.replica_of(name), self.wanted[name]
        if each is None or each.attachment != wanted.attachment or wanted.paused or replica.broken:
            return False
        return each.joined and each.position > replica.sure_from and each.start >= replica.lost_below

    @property
    def _committed_stable(self) -> int:
        return MINUS_INFINITY if self.broker.record is None else _instant(self.broker.record.max_stable)

    def _can_do_without(self, name: str) -> bool:
        return any(other != name and self.is_joined(other) for other in self.wanted)

    def _dispensable(self) -> str | None:
        """Return an input that the merge can do without, if one is found."""
        names = [name for name in self.wanted if self._can_do_without(name)]
        return self.rng.choice(names) if names else None

    def _detach_one(self) -> None:
        if name := self._dispensable():
            del self.wanted[name]
            self.owner.follow(self.wanted)

    def _attach_again(self) -> None:
        """Detach an input and attach it again, so quickly that the lane sees one change."""
        name = self._dispensable()
        if name is None or (replica := self.replica_of(name)).tainted:
            return
        if replica.joins_at is not None and replica.lost_below >= 0:
            return  # to say again from where it is complete would not be true any more
        del self.wanted[name]
        self._attach(replica)
        self.owner.follow(self.wanted)

    def _pause_one(self) -> None:
        paused = [name for name, each in self.wanted.items() if each.paused]
        if paused and self.rng.random() < 0.5:
            self._set(self.rng.choice(paused), paused=False)
        elif name := self._dispensable():
            self._set(name, paused=True)

    def _set(self, name: str, **change: Any) -> None:
        self.wanted[name] = self.wanted[name].model_copy(update=change)
        self.owner.follow(self.wanted)

    def _begin_anew(self) -> None:
        name = self.rng.choice(sorted(self.wanted))
        late = self._can_do_without(name) and self.rng.random() < 0.5
        if not (replica := self.replica_of(name)).broken:
            self._say_hello(replica, self._late() if late else self.origin)

    def _skip_ahead(self) -> None:
        """Let a replica say that it skipped: to what a signal told it, or, if others are joined, further."""
        name = self.rng.choice(sorted(self.wanted))
        replica = self.replica_of(name)
        told = [signal.before for signal in self.broker.signals if signal.input == name]
        stable = self._committed_stable
        if self._can_do_without(name) and self.rng.random() < 0.5:
            before = self._late()
        elif told:
            before = self.rng.choice(told)
        elif MINUS_INFINITY < stable < INFINITY and not self.config.normal_form:
            before = stable
        else:
            return
        if not replica.is_silent and not replica.broken:  # not before its hello
            replica.write([Skip(before)])
            replica.sure_from = replica.log.until - 1

    def _break_one(self) -> None:
        """Let a replica break exactly one rule."""
        name = self._dispensable()
        if name is None or any(replica.broken for replica in self.replicas.values()):
            return
        replica = self.replica_of(name)
        if replica.is_silent:
            return
        bad: list[bytes | None] = [b"{", None, encode(Adjust(payload("no"), 10**6, 10**6 + 5, 10**6 + 9))]
        if MINUS_INFINITY < replica.stable < INFINITY:
            bad.append(encode(Insert(payload("late"), replica.stable - 1, replica.stable + 5)))
        record = self.rng.choice(bad)
        replica.write_bad(record, must_stop=record != bad[2])
        if self.rng.random() < 0.5:
            replica.write_pending(3)
            self.owner.poll({replica.topic: 99}, now_ms=self.now_ms)
            self._commit()

    def _release_one(self) -> None:
        record = self.broker.record
        stopped = [] if record is None else [name for name in self.wanted if self._is_stopped(name, record)]
        if record is None or not stopped:
            return
        name = self.rng.choice(stopped)
        each, replica = record.inputs[name], self.replica_of(name)
        skip_record = replica.log.low <= each.start and self.rng.random() < 0.7
        if skip_record:
            replica.broken = replica.must_stop = False
            replica.sure_from = replica.bad_at
        self._set(name, release=Release(id=str(next(self._ids)), skip_record=skip_record))
        if not skip_record:
            self._say_hello(replica, self.origin)

    def _is_stopped(self, name: str, record: LaneRecord) -> bool:
        each = record.inputs.get(name)
        if each is None or each.attachment != self.wanted[name].attachment or each.stop is None:
            return False
        return each.stop.offset == self.replica_of(name).bad_at  # else it is released already, and broken again

    def _lose_records(self) -> None:
        """Let retention remove what the lane has not read."""
        name = self._dispensable()
        if name is None or self._is_taken_at_its_word(name):
            return
        if not (replica := self.replica_of(name)).broken:
            replica.log.cut(self.rng.randrange(replica.log.low, replica.log.end + 1))
            replica.lost_below = replica.log.low

    def _is_taken_at_its_word(self, name: str) -> bool:
        """Tell whether an input is complete by the attach call alone (RS 5.5), and none of its records is read yet.

        Nobody could tell that some are gone: until then whoever attaches it answers for what the topic holds.
        """
        wanted, record = self.wanted[name], self.broker.record
        each = None if record is None else record.inputs.get(name)
        is_known = each is not None and each.attachment == wanted.attachment
        return wanted.definition.joins_at is not None and not is_known

    # -- what is checked

    def _judge(self, record: LaneRecord) -> None:
        assert self.broker.record == record
        elements, error = decode_batch(self.broker.merged.read(self._judged)[1])
        assert error is None
        if self._judged == 0:
            joins_at = self.reference.complete_from
            assert elements.pop(0) == Hello(replica="m", incarnation=1, joins_at=joins_at, plan="merge")
        self._judged = self.broker.merged.end
        for element in elements:
            assert not isinstance(element, Hello | Skip)
            self.tdb.apply(element)  # raises if it is illegal
        assert self.tdb.stable == _instant(record.max_stable)
        assert not record.divergences
        self._judge_signals()
        reached = max(_instant(record.max_stable), _instant(record.max_vs) + (self.config.algorithm == "R0"))
        for name, each in record.inputs.items():
            state = self.owner.lane.inputs[name]
            if each.stop is not None and name in self.wanted:
                assert self.replica_of(name).broken, each.stop
            merged = state.is_merged and state.cursor >= state.position
            may_lead = _instant(each.joins_at) <= max(reached, self.config.begins_at)
            assert each.joined == (merged and may_lead), (name, each)

    def _judge_signals(self) -> None:
        """Require that every signal rests on a stable that is committed: a replica may hear it at any moment (F6)."""
        assert all(signal.before <= self._committed_stable for signal in self.broker.signals)

    def _retain(self, record: LaneRecord) -> None:
        """Cut the logs to what a successor needs by the committed record."""
        self.broker.merged.cut(record.merged_safe)
        for each in record.inputs.values():
            if each.stop is None or self.rng.random() < 0.5:
                self.replicas[each.topic].log.cut(each.safe)

    def check_rebuilt(self) -> None:
        """Require that a successor, once it has re-fed everything, knows what is known now; sometimes go on with it."""
        lane = self.owner.lane
        in_order = all(state.cursor >= state.position for state in lane.inputs.values() if state.is_merged)
        if not in_order or any(replica.lost_below >= 0 for replica in self.replicas.values()):
            return
        successor = self._take_over()
        successor.refeed(lambda: self.rng.randrange(1, 20))
        assert not successor.lane._pending, "recovery puts nothing out"
        rebuilt, known = successor.observable(), self.owner.observable()
        for part in known:
            assert rebuilt[part] == known[part], part
        self.owner.epoch = successor.epoch  # it has not been there
        if self.rng.random() < 0.5:
            self.owner = successor

    def finish(self) -> None:
        """Let everything be written, read and committed, and compare with the reference."""
        if self.zombie is not None:
            self._try(self.zombie)
        for name in self.wanted:
            self._set(name, paused=False)
        for _ in range(20):
            self._exhaust()
            waiting = [name for name, state in self.owner.lane.inputs.items() if state.seek is not None]
            for name in waiting:
                self._say_hello(self.replica_of(name), self.origin)
            if not waiting:
                break
        self._require_right()

    def _exhaust(self) -> None:
        for replica in self.replicas.values():
            replica.write_pending()
        while self.owner.poll({topic: self.rng.randrange(1, 30) for topic in self.replicas}, now_ms=self.now_ms):
            if self.rng.random() < 0.1:
                self._commit()
        self.now_ms += POSITIONS_MS  # else positions alone would wait
        self._commit()

    def _require_right(self) -> None:
        record = self.broker.record
        assert record is not None
        assert record.max_stable == INFINITY, "everything is read, and the merged stream has not ended"
        assert self.reference.is_shown_by(self.tdb)
        for name in self.wanted:
            each = record.inputs[name]
            assert each.joined == (each.stop is None), (name, each)
            assert each.stop is not None or not self.replica_of(name).must_stop
        self.check_rebuilt()


_WEIGHTS: list[tuple[Callable[[LaneWorld], None], int]] = [
    (LaneWorld._poll, 40),
    (LaneWorld._write, 6),
    (LaneWorld._commit, 20),
    (LaneWorld._crash, 7),
    (LaneWorld._leave_zombie, 2),
    (LaneWorld._zombie, 2),
    (LaneWorld._attach_one, 4),
    (LaneWorld._detach_one, 4),
    (LaneWorld._attach_again, 2),
    (LaneWorld._pause_one, 3),
    (LaneWorld._begin_anew, 3),
    (LaneWorld._skip_ahead, 4),
    (LaneWorld._break_one, 4),
    (LaneWorld._release_one, 4),
    (LaneWorld._lose_records, 2),
]
_ACTIONS = [action for action, weight in _WEIGHTS for _ in range(weight)]
_THEMES = [[action] * 15 for action, weight in _WEIGHTS if weight < 5]


def _instant(t: int | None) -> int:
    return MINUS_INFINITY if t is None else t
