"""An environment for the library verifiers, as anybody would write one: find a number with hints from the user."""

import verifiers.v1 as vf

__all__ = ["NumberEnv", "NumberTaskset"]


class NumberData(vf.TaskData):
    """The number to find."""

    number: int


class NumberTask(vf.Task[NumberData]):
    """Rewards the right number, however many guesses it took."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.number))

    @vf.metric
    async def guesses(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class NumberConfig(vf.TasksetConfig):
    """How many numbers there are."""

    size: int = 8


class NumberTaskset(vf.Taskset[NumberTask, NumberConfig]):
    """Every number sixteen times, under ids of their own."""

    def load(self) -> list[NumberTask]:
        system = f"Find my number from 1 to {self.config.size}."
        return [
            NumberTask(NumberData(id=f"{n}", number=n % self.config.size + 1, prompt="Guess.", system_prompt=system))
            for n in range(16 * self.config.size)
        ]


class NumberEnvConfig(vf.EnvConfig):
    """One seat, and how many guesses it has."""

    agent: vf.AgentConfig = vf.AgentConfig()
    guesses: int = 4


class NumberEnv(vf.Env[NumberEnvConfig]):
    """The user says whether the number is higher or lower."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        wanted = task.data.number
        async with agents.agent.interaction(task) as talk:
            segment = await talk.turn()
            for _ in range(self.config.guesses - 1):
                if segment.terminated or segment.last_reply == str(wanted):
                    break
                guess = int(segment.last_reply) if segment.last_reply.isdigit() else 0
                segment = await talk.turn("higher" if guess < wanted else "lower")
