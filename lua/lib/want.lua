-- What a job requires of its node: the arguments that all scripts share which choose a node, and the
-- table `want` that is made of them.
--
-- @arg seed number              random; before Redis 7, Lua's generator starts the same in every script
-- @arg src text
-- @arg tgt text
-- @arg require_tts flag
-- @arg stages number            bit mask of the stages that the node must offer
-- @arg preferred text           node id; '': none
-- @arg strict flag              choose the preferred node or none
-- @arg instance text            dispatcher whose nodes are preferred (lib/nearby.lua); '': none
-- @arg tenant text
-- @arg session text             '': none
-- @setting sample_k number
-- @setting pool_size number
-- @setting heartbeat_stale_ms number
-- @setting load_threshold number
-- @setting eject_max_share number
-- @arg excluded set             node ids

math.randomseed(seed)
local want = {
  src = src,
  tgt = tgt,
  tts = require_tts,
  stages = stages,
  preferred = preferred ~= '' and preferred or nil,
  strict = strict,
  instance = instance,
  tenant = tenant,
  session = session ~= '' and session or nil,
  sample_k = sample_k,
  size = pool_size,
  stale_ms = heartbeat_stale_ms,
  threshold = load_threshold,
  eject_share = eject_max_share,
  excluded = excluded,
}
if require_tts then
  want.pools = { src .. ':' .. tgt }
else
  want.pools = { 'text:' .. src .. ':' .. tgt, 'text:' .. src .. ':*' }
end
