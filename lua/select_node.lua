-- select_node: chooses a node as allocate would, but reserves, records and binds nothing.
--
-- Takes the arguments of lib/want.lua.
-- Returns {'ok', node id, epoch, owner instance, owner address, path, binding, binding kind},
--   or {reason, why, times, ...}.
-- @include lib/now
-- @include lib/want
-- @include lib/choose

local now = now_ms()
local bound, bound_path
if want.session then
  bound, bound_path = turn_read(turn_key(P, want.tenant, want.session, want.src, want.tgt), now)
end
local found = bound and choose_bound(P, want, now, bound, bound_path, false) or nothing_found(nil)
if not found.id then
  choose_any(P, want, now, found)
end
if found.error then
  return refusal(found)
end
return { 'ok', found.id, found.node.epoch, found.node.owner, found.node.address, found.path,
  found.binding, found.binding_kind }
