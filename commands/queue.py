"""What waits, indexed so that the next task is found without looking at all: lanes, heaps of targets, crews of robots.

A lane holds tasks of equal (requirement with slot cost, kind, limit key). It is a heap of free targets, each standing
for its first task; a task without target stands for itself. Entries are never removed but known as stale by their
generation. Keys (docs/understand/order.md; smaller first):

    inside a target    (bucket(eligible_at, priority), deadline, sequence)
    between targets    (level of the first task, last_served, deadline, sequence)

Everything here is derived from the rows and rebuilt after a snapshot; `now` is the instant of the event or tick.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final

from commands.crews import Crew, Crews
from commands.requirements import meets
from commands.state import PoolState, Robot, Target, Task, Terms

NEVER: Final = 1 << 62
NEVER_SERVED: Final = -1
NEEDS_KEPT: Final = 2_048
LEVELS_KEPT: Final = 4_096
FEW: Final = 256
"""Up to so many tasks a target has one heap, which is looked through where its first task cannot be taken now."""
WHOLE: Final = None
"""The place of that heap; a target with more has a heap for each (lane, priority)."""

Entry = tuple[int, int, int, int, int, "Task | Target"]


def bucket(instant: int, priority: int, ageing_ms: int) -> int:
    """The ageing interval of an instant less the priority: a task gains one level per interval waited."""
    return instant // ageing_ms - priority


class Need:
    """A requirement with its slot cost, the registered robots that meet it, and how many tasks wait for it.

    `crews` are those with room for it, as of `version`.
    """

    __slots__ = ("able", "crews", "requirement", "slot_cost", "version", "waiting")

    def __init__(self, requirement: tuple[str, ...], slot_cost: int) -> None:
        self.requirement = requirement
        self.slot_cost = slot_cost
        self.able: dict[str, Robot] = {}
        self.waiting = 0
        self.crews: list[Crew] = []
        self.version = -1

    def met_by_all(self, crew: Crew) -> bool:
        """Whether the robots of a crew could run it; all of them can, or none."""
        robot = crew.next()
        return robot is not None and robot.id in self.able

    def met_by(self, robot: Robot) -> bool:
        """Whether the robot could run it when it has room."""
        return robot.slots >= self.slot_cost and meets(self.requirement, robot.abilities)


class Lane:
    """A heap of entries; `live` of them are valid, `waiting` tasks belong to it, `targets` have tasks in it."""

    __slots__ = ("heap", "key", "kind", "limit_key", "live", "need", "paused", "targets", "waiting")

    def __init__(self, key: tuple[Any, ...], need: Need, kind: str, limit_key: str | None, paused: bool) -> None:
        self.key = key
        self.need = need
        self.kind = kind
        self.limit_key = limit_key
        self.paused = paused
        self.heap: list[Entry] = []
        self.live = 0
        self.waiting = 0
        self.targets: dict[str, int] = {}

    @property
    def blocked(self) -> bool:
        """Whether none of its tasks can be anybody's first now."""
        return self.paused or not self.need.able


class Queue:
    """The waiting tasks of one pool, and the robots with room."""

    __slots__ = ("_levels", "_state", "changed_needs", "crews", "lanes", "needs", "waiting")

    def __init__(self) -> None:
        self._state: PoolState
        self._levels: dict[int, int] = {}
        self.lanes: dict[tuple[Any, ...], Lane] = {}
        self.needs: dict[tuple[tuple[str, ...], int], Need] = {}
        self.crews = Crews()
        self.changed_needs: dict[tuple[tuple[str, ...], int], None] = {}
        self.waiting = 0

    def bind(self, state: PoolState) -> None:
        """Says whose queue this is."""
        self._state = state

    # ---- tasks ----

    def add(self, task: Task, now: int) -> None:
        """The task is WAITING now."""
        self._place(task, self._count(task), now)

    def _count(self, task: Task) -> Lane:
        """One more waits in its lane."""
        lane = self._lane(task.terms)
        lane.waiting += 1
        lane.need.waiting += 1
        self.waiting += 1
        if lane.need.waiting == 1:
            self.changed_needs[lane.need.requirement, lane.need.slot_cost] = None
        if task.target is not None:
            lane.targets[task.target.name] = lane.targets.get(task.target.name, 0) + 1
        else:
            lane.live += 1
        return lane

    def remove(self, task: Task) -> None:
        """The task is no longer WAITING."""
        task.generation += 1
        lane = self._lane(task.terms)
        lane.waiting -= 1
        lane.need.waiting -= 1
        self.waiting -= 1
        target = task.target
        if target is None:
            lane.live -= 1
        else:
            target.backing.pop(task.id, None)
            left = lane.targets[target.name] - 1
            if left:
                lane.targets[target.name] = left
            else:
                del lane.targets[target.name]
            self.rekey(target)
        if not lane.need.waiting:
            self._state.unsatisfiable.discard((lane.need.requirement, lane.need.slot_cost))
        if not lane.waiting:
            del self.lanes[lane.key]
        elif len(lane.heap) > 2 * max(lane.live, 0) + 64:
            self._rebuild(lane)

    def due(self, task: Task, now: int) -> None:
        """Not-before or back-off of a waiting task may be over."""
        if task.state == "WAITING":
            task.generation += 1
            self._place(task, self._lane(task.terms), now)

    def set_paused(self, task: Task, now: int) -> None:
        """The task was paused or resumed by itself."""
        self.due(task, now)

    def _place(self, task: Task, lane: Lane, now: int) -> None:
        target = task.target
        if self._may_run(task, now):
            if target is None:
                heappush(lane.heap, (*self._key(task, None), task.generation, task))
            else:
                self._join(target, lane, task)
        if target is not None:
            self.rekey(target)

    def _may_run(self, task: Task, now: int) -> bool:
        """Whether it is eligible and not paused by itself; asks for a look where it is not eligible yet."""
        target, later = task.target, max(task.eligible_at, task.again_at)
        if later > now:
            self._state.timers.push(later, "due", task.id)
        if target is not None:
            if task.again_at > now:
                target.backing[task.id] = task
            else:
                target.backing.pop(task.id, None)
        return later <= now and ("task", task.id) not in self._state.paused

    # ---- targets ----

    def rekey(self, target: Target) -> None:
        """Puts the target into the lane of its first task, or takes it out; pushes only if something changed."""
        head = None if target.holder is not None or target.paused else self._head(target)
        lane = None if head is None else self._lane(head.terms)
        key = None if head is None else self._key(head, target)
        target.first = head
        if target.lane is lane and target.entry == key:
            return
        target.generation += 1
        if target.lane is not None:
            target.lane.live -= 1
        target.lane, target.entry = lane, key
        if lane is not None and key is not None:
            lane.live += 1
            heappush(lane.heap, (*key, target.generation, target))

    def first_of(self, target: Target) -> Task:
        """The first task of a target that stands in a lane."""
        if target.first is None:
            raise AssertionError(f"target {target.name} stands in a lane without a task")
        return target.first

    def place_of(self, task: Task) -> tuple[int, int, int, int] | None:
        """The key by which the task, or the target that it belongs to, stands in a lane; None where in none."""
        if task.target is not None:
            entry: tuple[int, int, int, int] | None = task.target.entry
            return entry
        return None if self._lane(task.terms).blocked else self._key(task, None)

    def _join(self, target: Target, lane: Lane, task: Task) -> None:
        place = (lane, task.terms.priority) if target.heaps and WHOLE not in target.heaps else WHOLE
        heap = target.heaps.setdefault(place, [])
        heappush(heap, (*self.place_in_target(task), task.generation, task))
        if len(heap) > max(FEW, 2 * target.tasks):
            heap[:] = [entry for entry in heap if entry[3] == entry[4].generation]
            heapify(heap)
        if place is WHOLE and len(heap) > FEW:
            self._split(target)

    def _split(self, target: Target) -> None:
        """A target with many tasks gets a heap for each lane and priority."""
        for entry in target.heaps.pop(WHOLE):
            if entry[3] == entry[4].generation:
                terms = entry[4].terms
                heappush(target.heaps.setdefault((self._lane(terms), terms.priority), []), entry)

    def _head(self, target: Target) -> Task | None:
        barrier = held_up_to(target)
        if WHOLE in target.heaps:
            return self._head_of_few(target, barrier)
        best: Any = None
        for place in list(target.heaps):
            lane, priority = place
            heap = target.heaps[place]
            _drop_stale(heap)
            if not heap:
                del target.heaps[place]
            elif priority > barrier and not lane.blocked and (best is None or heap[0] < best):
                best = heap[0]
        return None if best is None else best[4]

    def _head_of_few(self, target: Target, barrier: int) -> Task | None:
        heap = target.heaps[WHOLE]
        _drop_stale(heap)
        if not heap:
            del target.heaps[WHOLE]
            return None
        first: Task = heap[0][4]
        if self._passes(first, barrier):
            return first
        passing = (e for e in heap if e[3] == e[4].generation and self._passes(e[4], barrier))
        best: Any = min(passing, default=None)
        return None if best is None else best[4]

    def _passes(self, task: Task, barrier: int) -> bool:
        return task.terms.priority > barrier and not self._lane(task.terms).blocked

    def place_in_target(self, task: Task) -> tuple[int, int, int]:
        """The key by which the tasks of one target are in order."""
        return self._level(task.eligible_at, task.terms.priority), _deadline(task), task.sequence

    def _level(self, instant: int, priority: int) -> int:
        """The bucket, as one object for all equal ones."""
        if len(self._levels) > LEVELS_KEPT:
            self._levels.clear()
        level = bucket(instant, priority, self._state.settings.ageing_ms)
        return self._levels.setdefault(level, level)

    def _key(self, task: Task, target: Target | None) -> tuple[int, int, int, int]:
        ageing_ms, priority = self._state.settings.ageing_ms, task.terms.priority
        own = self._level(task.eligible_at, priority)
        served = None if target is None else target.last_served
        if target is None or served is None or task.eligible_at // ageing_ms > served // ageing_ms:
            return own, NEVER_SERVED, _deadline(task), task.sequence
        level = max(own, min(target.level, bucket(served, priority, ageing_ms)))
        return level, served, _deadline(task), task.sequence

    # ---- lanes and needs ----

    def top(self, lane: Lane) -> Entry | None:
        """The first valid entry of a lane, left in it."""
        heap = lane.heap
        while heap and heap[0][4] != heap[0][5].generation:
            heappop(heap)
        return heap[0] if heap else None

    def below_limits(self, lane: Lane, now: int) -> bool:
        """Whether the limits of its kind and key let one more of its tasks be assigned now."""
        return self._state.limits.below(lane.kind, lane.limit_key, now)

    def need_of(self, terms: Terms) -> Need:
        """The need of these terms, made if there is none."""
        key = (terms.needed, terms.slot_cost)
        need = self.needs.get(key)
        if need is None:
            if len(self.needs) >= NEEDS_KEPT:
                self.needs = {k: n for k, n in self.needs.items() if n.waiting}
            need = self.needs[key] = Need(*key)
            need.able = {r.id: r for r in self._state.robots.values() if need.met_by(r)}
        return need

    def _lane(self, terms: Terms) -> Lane:
        key = (terms.requirement, terms.slot_cost, terms.kind, terms.limit_key)
        lane = self.lanes.get(key)
        if lane is None:
            paused = ("kind", terms.kind) in self._state.paused
            lane = self.lanes[key] = Lane(key, self.need_of(terms), terms.kind, terms.limit_key, paused)
        return lane

    def _rebuild(self, lane: Lane) -> None:
        lane.heap = [entry for entry in lane.heap if entry[4] == entry[5].generation]
        heapify(lane.heap)

    def pause_kind(self, kind: str, paused: bool) -> None:
        """Tasks of a kind are nobody's first while it is paused."""
        for lane in self.lanes.values():
            if lane.kind == kind:
                lane.paused = paused
                self._rekey_targets(lane)

    def rekey_all(self, now: int) -> None:
        """Everything is keyed anew (the ageing interval changed, or a snapshot was loaded)."""
        self.lanes.clear()
        self.needs.clear()
        self.waiting = 0
        for target in self._state.targets.values():
            target.lane, target.entry, target.heaps, target.backing = None, None, {}, {}
        for task in self._state.tasks.values():
            if task.state == "WAITING":
                task.generation += 1
                self._append(task, self._count(task), now)
        for lane in list(self.lanes.values()):
            heapify(lane.heap)
        for target in self._state.targets.values():
            heapify(target.heaps.get(WHOLE, []))
            if len(target.heaps.get(WHOLE, ())) > FEW:
                self._split(target)
            self.rekey(target)

    def _append(self, task: Task, lane: Lane, now: int) -> None:
        """As `_place`, but the heaps are put in order when all tasks are in."""
        if not self._may_run(task, now):
            return
        if task.target is None:
            lane.heap.append((*self._key(task, None), task.generation, task))
        else:
            task.target.heaps.setdefault(WHOLE, []).append((*self.place_in_target(task), task.generation, task))

    def _rekey_targets(self, lane: Lane) -> None:
        for name in list(lane.targets):
            self.rekey(self._state.targets[name])

    # ---- robots ----

    def robot_changed(self, robot: Robot) -> None:
        """Capabilities or slots may be others, or the robot is new."""
        for key, need in self.needs.items():
            could = bool(need.able)
            if need.met_by(robot):
                need.able[robot.id] = robot
            else:
                need.able.pop(robot.id, None)
            self._note_ability(key, need, could)
        self.room_changed(robot)

    def robot_gone(self, robot: Robot) -> None:
        """The robot is no longer registered."""
        self.crews.remove(robot)
        for key, need in self.needs.items():
            could = bool(need.able)
            need.able.pop(robot.id, None)
            self._note_ability(key, need, could)

    def _note_ability(self, key: tuple[tuple[str, ...], int], need: Need, could: bool) -> None:
        if could == bool(need.able):
            return
        self.changed_needs[key] = None
        for lane in self.lanes.values():
            if lane.need is need:
                self._rekey_targets(lane)

    def room_changed(self, robot: Robot) -> None:
        """What the robot may take has changed."""
        self.crews.place(robot)

    def with_room(self, need: Need) -> list[Crew]:
        """The crews that meet a need and have room for it."""
        if need.version != self.crews.version:
            free = self.crews.free.values()
            need.crews = [crew for crew in free if crew.room >= need.slot_cost and need.met_by_all(crew)]
            need.version = self.crews.version
        return need.crews

    def crews_offering(self, need: Need) -> Iterator[Crew]:
        """The crews that meet a need and offer slots enough for it, free or not."""
        crews = self.crews.all.values()
        return (crew for crew in crews if crew.offered >= need.slot_cost and need.met_by_all(crew))


def _drop_stale(heap: list[Any]) -> None:
    while heap and heap[0][3] != heap[0][4].generation:
        heappop(heap)


def _deadline(task: Task) -> int:
    first = task.first_deadline
    return NEVER if first is None else first


def held_up_to(target: Target) -> int:
    """Only a priority above this passes the target's tasks that back off; those with `pass: all` hold up nothing."""
    backing = (task.terms for task in target.backing.values())
    return max((terms.priority for terms in backing if terms.passing == "higher"), default=-1)
