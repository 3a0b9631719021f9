"""Whether a hook looks at its logs, which the device has to finish the step for."""

from __future__ import annotations

import dis
import inspect
from typing import Any

_INDIRECTLY = {"locals", "vars", "eval", "exec", "breakpoint", "set_trace", "_getframe"}


def reads_logs(hook: Any) -> bool:
    """Whether a hook ``(batch, logs)`` may look at its logs: what its code says.

    ``True`` whenever that is not certain.

    Example:
        >>> steps, losses = [], []
        >>> reads_logs(lambda batch, logs: steps.append(batch))
        False
        >>> reads_logs(lambda batch, logs: losses.append(logs["loss"]))
        True
    """
    bound = inspect.ismethod(hook)
    code = getattr(hook.__func__ if bound else hook, "__code__", None)
    place = 1 + bound
    if code is None or code.co_argcount <= place:
        return True
    name = code.co_varnames[place]
    if name in code.co_cellvars or _INDIRECTLY & {*code.co_names}:
        return True
    local = (i.argval for i in dis.get_instructions(code) if "FAST" in i.opname)
    return any(name in (v if isinstance(v, tuple) else (v,)) for v in local)
