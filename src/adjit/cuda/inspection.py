"""What is in the machine code of a device kernel: registers, memory and instructions.

The tools are NVIDIA's `cuobjdump` and `nvdisasm`, of a toolkit on the PATH or of the packages
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm (the extra `cuda-tools`); no GPU is needed.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ..schedule.jit import nvidia
from ..schedule.planning.recipe import DeviceSource

__all__ = ["Code", "code_of", "has_tools"]

DOUBLE = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)\b|(F2F|I2F|F2I|FRND)\.(\S*\.)?F64|MUFU\.\w+64H")


class Code(NamedTuple):
    """The machine code of a kernel, as `code_of` finds it: its registers, memory and instructions.

    Example:
        >>> from collections import Counter
        >>> from adjit.cuda import inspection
        >>> inspection.Code(8, 0, 0, 0, Counter({"FADD": 2})).registers
        8
    """

    registers: int
    stack: int  # bytes of a thread's stack: its arrays, and spilled registers
    spills: int  # bytes that are stored for want of registers
    shared: int  # bytes of a block's shared memory
    instructions: Counter[str]  # by their names with modifiers, such as LDG.E.128

    @property
    def double(self) -> list[str]:
        """The names of the instructions that compute in float64.

        Example:
            >>> from collections import Counter
            >>> from adjit.cuda import inspection
            >>> inspection.Code(8, 0, 0, 0, Counter({"DADD": 1, "FADD": 2})).double
            ['DADD']
        """
        return sorted(name for name in self.instructions if DOUBLE.match(name))

    def count(self, name: str) -> int:
        """Count the instructions that begin with a name.

        Example:
            >>> from collections import Counter
            >>> from adjit.cuda import inspection
            >>> inspection.Code(8, 0, 0, 0, Counter({"LDG.E": 1, "LDG.E.128": 2})).count("LDG")
            3
        """
        return sum(k for found, k in self.instructions.items() if found.startswith(name))


@functools.cache
def _tool(name: str) -> str | None:
    """Where a tool of the toolkit is."""
    found = shutil.which(name)
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(folder).glob(f"*/bin/{name}")):
            found = found or str(path)
    return found


def has_tools() -> bool:
    """True if machine code can be looked into here: the tools are found.

    Example:
        >>> from adjit.cuda import inspection
        >>> can_look = inspection.has_tools()
    """
    return _tool("cuobjdump") is not None and _tool("nvdisasm") is not None


def code_of(source: DeviceSource, cc: tuple[int, int]) -> Code:
    """Compile a device kernel for a compute capability such as (9, 0) and look into it.

    Raises:
        ToolkitMissing: if it cannot be compiled here.
        RuntimeError: if the tools are not there.

    Example:
        >>> from adjit.cuda import inspection
        >>> (kernel,) = adjit.cuda.kernels(-adjit.tensor([1.0, 2.0]))
        >>> if inspection.has_tools():
        ...     code = inspection.code_of(kernel, (9, 0))
    """
    if not has_tools():
        raise RuntimeError(
            "looking into machine code needs cuobjdump and nvdisasm: pip install 'adjit[cuda-tools]'"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        made = nvidia.cubin(source, cc)
        file.write(made.code)
        file.flush()
        usage = _output("cuobjdump", "-res-usage", file.name)
        text = _output(
            "nvdisasm", "-c", "-ndf", file.name
        )  # without a flow of data that nobody reads

    def used(what: str) -> int:
        return max((int(n) for n in re.findall(rf"\b{what}:(\d+)", usage)), default=0)

    names = re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", text, re.MULTILINE)
    return Code(used("REG"), used("STACK"), made.spills, used("SHARED"), Counter(names))


def _output(tool: str, *arguments: str) -> str:
    command = [str(_tool(tool)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
