"""A link that several jobs share evenly, for the event model: with n jobs on it each runs at 1/n of its rate."""

import simpy
from simpy.events import Event, Timeout


class SharedLink:
    """Processor sharing: what a job needs alone is work; the work of all jobs together is done at rate one."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._left: dict[Event, float] = {}
        self._since = 0.0
        self._round = 0

    def carry(self, seconds: float) -> Event:
        """Put a job on the link that takes `seconds` alone; the event fires when it is through."""
        done = Event(self._env)
        if seconds <= 0:
            done.succeed()
            return done
        self._advance()
        self._left[done] = seconds
        self._arm()
        return done

    def _advance(self) -> None:
        """Work off what has been done since the last change."""
        if self._left:
            each = (self._env.now - self._since) / len(self._left)
            for job in self._left:
                self._left[job] -= each
        self._since = self._env.now

    def _arm(self) -> None:
        """Wake when the shortest job ends, unless another joins before."""
        self._round += 1
        if not self._left:
            return
        job = min(self._left, key=lambda j: self._left[j])
        alarm = Timeout(self._env, max(0.0, self._left[job]) * len(self._left))
        mine = self._round

        def ring(_: Event) -> None:
            if mine != self._round:
                return
            self._advance()
            del self._left[job]
            job.succeed()
            self._arm()

        alarm.callbacks.append(ring)
