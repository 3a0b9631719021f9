"""The ops that NumPy has too."""

from exburn.ops.arrangement import *  # noqa: F403
from exburn.ops.creation import *  # noqa: F403
from exburn.ops.elementwise import *  # noqa: F403
from exburn.ops.product import *  # noqa: F403
from exburn.ops.reduction import *  # noqa: F403
