import verifiers.v1 as vf


class AdderTools(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Adds two numbers."""
        return str(a + b)


if __name__ == "__main__":
    AdderTools.run()
