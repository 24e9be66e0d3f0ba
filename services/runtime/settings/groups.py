"""The groups of settings in the order in which `lingua config` prints them, and the profiles."""

from pydantic import BaseModel

from lingua_scheduler.services.runtime.settings.console_fields import ConsoleFields
from lingua_scheduler.services.runtime.settings.dispatcher_fields import DispatcherFields
from lingua_scheduler.services.runtime.settings.gateway_fields import GatewayFields
from lingua_scheduler.services.runtime.settings.general_fields import GeneralFields
from lingua_scheduler.services.runtime.settings.network_fields import AddressFields, GrpcFields
from lingua_scheduler.services.runtime.settings.pool_fields import PoolFields
from lingua_scheduler.services.runtime.settings.quota_fields import OwnerFields, QuotaFields
from lingua_scheduler.services.runtime.settings.redis_fields import RedisFields
from lingua_scheduler.services.runtime.settings.room_fields import RoomFields
from lingua_scheduler.services.runtime.settings.security_fields import SecurityFields
from lingua_scheduler.services.runtime.settings.web_fields import WebFields

GROUPS: dict[str, type[BaseModel]] = {
    "general": GeneralFields,
    "redis": RedisFields,
    "addresses": AddressFields,
    "grpc": GrpcFields,
    "security": SecurityFields,
    "quotas": QuotaFields,
    "owners": OwnerFields,
    "pool": PoolFields,
    "dispatcher": DispatcherFields,
    "gateway": GatewayFields,
    "rooms": RoomFields,
    "web": WebFields,
    "console": ConsoleFields,
}

# What a profile sets other than the defaults above.
PROFILES: dict[str, dict[str, int]] = {
    "stable": {},
    "efficient": {
        "sample_k": 40,
        "reservation_ttl_ms": 3000,
        "ack_timeout_ms": 500,
        "max_retry": 3,
        "queue_wait_ms": 500,
        "hedge_after_ms": 250,
    },
}
