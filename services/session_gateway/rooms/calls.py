"""The calls about rooms that are no streams: create, tokens, views, close."""

import contextlib
import secrets
import time

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import Role, caller, tenant_for
from lingua_scheduler.services.runtime.auth.quotas import tenant_limits
from lingua_scheduler.services.runtime.auth.room_tokens import RoomTokenRole, new_secret, sign
from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.services.session_gateway.rooms.records import RoomFacts
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.v1 import rooms_pb2

_ROOM_ID_BYTES = 9
_DAY_S = 24 * 3600
_ROLES = {
    rooms_pb2.ROOM_ROLE_LISTENER: RoomTokenRole.LISTENER,
    rooms_pb2.ROOM_ROLE_SPEAKER: RoomTokenRole.SPEAKER,
}


class RoomCalls:
    """Each method is a call of the contract, over gRPC or over the web entry."""

    def __init__(
        self, *, settings: Settings, cells: Cells, rooms: Rooms, metrics: GatewayMetrics
    ) -> None:
        self._settings = settings
        self._cells = cells
        self._rooms = rooms
        self._metrics = metrics

    async def create(self, request: rooms_pb2.CreateRoomRequest) -> rooms_pb2.CreateRoomResponse:
        """Creates a room. Raises QuotaExceededError, PermissionDeniedError."""
        tenant = tenant_for(request.tenant, "tenant")
        options = rooms_pb2.RoomOptions()
        options.CopyFrom(request.options)
        options.languages[:] = dict.fromkeys(each.lower() for each in request.options.languages)

        async def create_in(cell: Cell) -> RoomFacts:
            return await self._rooms.store.create(
                room_id=id_in_cell(secrets.token_hex(_ROOM_ID_BYTES), cell.number),
                tenant=tenant,
                options=options,
                secret=new_secret(),
                most_rooms=tenant_limits(self._settings).rooms,
            )

        try:
            facts = await self._cells.in_new(create_in)
        except errors.QuotaExceededError as error:
            self._metrics.quota_refused(error)
            raise
        room = rooms_pb2.Room(
            room_id=facts.room_id,
            tenant=tenant,
            options=facts.options,
            created_ms=facts.created_ms,
        )
        host_token = sign(facts.room_id, facts.secret, RoomTokenRole.HOST)
        return rooms_pb2.CreateRoomResponse(room=room, host_token=host_token)

    async def create_join_token(
        self, request: rooms_pb2.CreateJoinTokenRequest
    ) -> rooms_pb2.CreateJoinTokenResponse:
        """Makes a token with which others can join."""
        facts = await self._rooms.door.to_host(request.room_id, request.host_token)
        expires_s = int(time.time()) + (request.lifetime_s or _DAY_S)
        token = sign(facts.room_id, facts.secret, _ROLES[request.role], expires_s)
        return rooms_pb2.CreateJoinTokenResponse(join_token=token, expires_ms=expires_s * 1000)

    async def get(self, request: rooms_pb2.GetRoomRequest) -> rooms_pb2.GetRoomResponse:
        """Returns a room as it is now."""
        await self._rooms.door.to_see(request.room_id, request.token)
        room = await self._rooms.views.get(request.room_id)
        if not _is_operator():
            room.ClearField("gateway_instances")
            room.ClearField("tenant")
        return rooms_pb2.GetRoomResponse(room=room)

    async def list(self, request: rooms_pb2.ListRoomsRequest) -> rooms_pb2.ListRoomsResponse:
        """Returns a page of rooms."""
        rooms, token = await self._rooms.views.list(
            request.tenant, request.page_size, request.page_token
        )
        return rooms_pb2.ListRoomsResponse(rooms=rooms, next_page_token=token)

    async def members(self, request: rooms_pb2.ListMembersRequest) -> rooms_pb2.ListMembersResponse:
        """Returns a page of a room's members."""
        await self._rooms.door.to_see_members(request.room_id, request.token)
        members, token = await self._rooms.views.members(
            request.room_id, request.page_size, request.page_token
        )
        if not _is_operator():
            for member in members:
                member.ClearField("gateway_instance")
        return rooms_pb2.ListMembersResponse(members=members, next_page_token=token)

    async def close(self, request: rooms_pb2.CloseRoomRequest) -> rooms_pb2.CloseRoomResponse:
        """Ends a room. It is not an error if it was closed before."""
        with contextlib.suppress(errors.RoomClosedError):
            await self._rooms.door.to_host(request.room_id, request.host_token)
            await self._rooms.close_room(request.room_id)
        return rooms_pb2.CloseRoomResponse()


def _is_operator() -> bool:
    who = caller()
    return who is None or who.role in (Role.OPERATOR, Role.VIEWER)
