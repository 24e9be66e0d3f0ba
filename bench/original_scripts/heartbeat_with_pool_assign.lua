-- The heartbeat script of the original design, completed by the parts that read the node and renew
-- its keys. Only for comparison in bench/pool.py.
local MAX_POOL_SIZE = 100
local MAX_POOL_ID = 999
local node_id = ARGV[1]
local now_ts = ARGV[2]

local node_key = "lingua:v1:node:" .. node_id
local node_pools_key = node_key .. ":pools"
local asr_langs = cjson.decode(redis.call("HGET", node_key, "asr_langs"))
local tts_langs = cjson.decode(redis.call("HGET", node_key, "tts_langs"))
redis.call("HSET", node_key, "last_heartbeat_ts", now_ts)
redis.call("EXPIRE", node_key, 3600)

local directed_pairs = {}
for _, src in ipairs(asr_langs) do
    for _, tgt in ipairs(tts_langs) do
        table.insert(directed_pairs, src .. ":" .. tgt)
    end
end

for _, pair_key in ipairs(directed_pairs) do
    local existing_pool_id = redis.call("HGET", node_pools_key, pair_key)

    if existing_pool_id then
        local pool_key = "lingua:v1:pool:" .. pair_key .. ":" .. existing_pool_id .. ":nodes"
        redis.call("SADD", pool_key, node_id)
        redis.call("EXPIRE", pool_key, 3600)
    else
        for pool_id = 0, MAX_POOL_ID do
            local pool_key = "lingua:v1:pool:" .. pair_key .. ":" .. pool_id .. ":nodes"
            local current_size = redis.call("SCARD", pool_key)

            if current_size < MAX_POOL_SIZE then
                redis.call("SADD", pool_key, node_id)
                redis.call("EXPIRE", pool_key, 3600)
                redis.call("HSET", node_pools_key, pair_key, tostring(pool_id))
                break
            end
        end
    end
end
redis.call("EXPIRE", node_pools_key, 3600)
return "OK:" .. #directed_pairs .. "_pairs"
