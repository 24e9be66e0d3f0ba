from lingua_scheduler.services.runtime.capabilities import *  # noqa: F403
from lingua_scheduler.services.runtime.capabilities import Capabilities as Capabilities
