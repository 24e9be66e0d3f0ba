-- The selection script of the original design. Only for comparison in bench/pool.py.
local MAX_POOL_ID = 999
local pair_key = ARGV[1]
local job_id = ARGV[2]

if job_id and job_id ~= "" then
    local binding_key = "lingua:v1:job:" .. job_id .. ":node"
    local bound_node = redis.call("GET", binding_key)
    if bound_node then
        return bound_node
    end
end

local pool_ids = {}
for pool_id = 0, MAX_POOL_ID do
    local pool_key = "lingua:v1:pool:" .. pair_key .. ":" .. pool_id .. ":nodes"
    local current_size = redis.call("SCARD", pool_key)

    if current_size > 0 then
        table.insert(pool_ids, pool_id)
    elseif current_size == 0 and pool_id > 0 and #pool_ids > 0 then
        break
    end
end

if #pool_ids == 0 then
    return nil
end

math.randomseed(tonumber(redis.call("TIME")[1]) + tonumber(redis.call("TIME")[2]))
local selected_pool_id = pool_ids[math.random(#pool_ids)]

local selected_pool_key = "lingua:v1:pool:" .. pair_key .. ":" .. selected_pool_id .. ":nodes"
local node_id = redis.call("SRANDMEMBER", selected_pool_key)

if job_id and job_id ~= "" then
    local binding_key = "lingua:v1:job:" .. job_id .. ":node"
    redis.call("SET", binding_key, node_id, "EX", 3600)
end

return node_id
