-- Successes and failures of a node, and its ejection. A node that fails `threshold` times in a row is
-- ejected: it is not chosen for a while, twice as long each time. Then it is tried again, and one
-- more failure ejects it again. One success clears the count.
--
-- Consecutive failures of the same session count once, so that one session with bad jobs ejects no
-- node. The draw limits how many ejected nodes are left out (candidates.lua).

local function record_success(node)
  node.failures, node.ejections, node.ejected = 0, 0, 0
end

-- Records a failure. tenant, session: from the job's record; a job without a session counts by its
-- own id.
local function record_failure(node, tenant, session, job, threshold, eject_ms, eject_max_ms, now)
  local source = (session or '') ~= '' and tenant .. ':' .. session or job
  local blamed = tonumber(string.sub(redis.sha1hex(source), 1, 8), 16)
  if node.failures > 0 and node.blamed == blamed then return end
  node.blamed = blamed
  node.failures = math.min(node.failures + 1, 255)
  if node.failures >= threshold and node.ejected <= now then
    node.ejected = now + math.min(eject_ms * 2 ^ node.ejections, eject_max_ms)
    node.ejections = math.min(node.ejections + 1, 255)
  end
end
