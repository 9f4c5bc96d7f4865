import verifiers.v1 as vf

from vf_adder.tools import AdderTools


class AdderData(vf.TaskData):
    total: int


class AdderTaskConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class AdderTask(vf.Task[AdderData, vf.State, AdderTaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [AdderTools(config.tools)]

    @vf.reward(weight=0.5)
    async def right(self, trace) -> float:
        return float(trace.last_reply == str(self.data.total))

    @vf.reward(weight=0.5)
    async def asked(self, trace) -> float:
        return float(any(m.role == "tool" for m in trace.messages))


class AdderConfig(vf.TasksetConfig):
    task: AdderTaskConfig = AdderTaskConfig()


class AdderTaskset(vf.Taskset[AdderTask, AdderConfig]):
    INFINITE = True

    def load(self):
        n = 0
        while True:
            yield AdderTask(AdderData(prompt=f"What is {n} plus {n % 3}?", total=n + n % 3), self.config.task)
            n += 1
