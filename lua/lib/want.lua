-- What a job asks of its node. Read from ARGV, so that every script that chooses takes the same
-- arguments in the same order.

-- ARGV 1 seed            a random number from the caller: before Redis 7, Lua's own generator
--                        starts every script alike
-- ARGV 2 src, 3 tgt      languages
-- ARGV 4 require_tts     1 or 0
-- ARGV 5 stages          bit mask of the stages that the node must offer
-- ARGV 6 preferred       node id or ''
-- ARGV 7 strict          1: the preferred node or none
-- ARGV 8 instance        dispatcher whose nodes are taken among equals, or ''
-- ARGV 9 tenant          tenant or ''
-- ARGV 10 session        session id or ''
-- ARGV 11 sample_k, 12 pool_size, 13 heartbeat_stale_ms, 14 load_threshold,
--   15 eject_max_share    settings
-- ARGV 16 count of excluded ids, then that many ids
-- Returns what was read, and the index of the first argument after it.
local function want_read(argv)
  math.randomseed(tonumber(argv[1]))
  local src, tgt = argv[2], argv[3]
  local want = {
    src = src,
    tgt = tgt,
    tts = argv[4] == '1',
    stages = tonumber(argv[5]),
    preferred = argv[6] ~= '' and argv[6] or nil,
    strict = argv[7] == '1',
    instance = argv[8],
    tenant = argv[9],
    session = argv[10] ~= '' and argv[10] or nil,
    sample_k = tonumber(argv[11]),
    size = tonumber(argv[12]),
    stale_ms = tonumber(argv[13]),
    threshold = tonumber(argv[14]),
    eject_share = tonumber(argv[15]),
    excluded = {},
  }
  if want.tts then
    want.pools = { src .. ':' .. tgt }
  else
    want.pools = { 'text:' .. src .. ':' .. tgt, 'text:' .. src .. ':*' }
  end
  local after = 17 + tonumber(argv[16])
  for i = 17, after - 1 do
    want.excluded[argv[i]] = true
  end
  return want, after
end
