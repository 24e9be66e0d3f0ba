-- A node's record of success and failure, and what follows from it. A node that fails `threshold`
-- times in a row is not chosen for a while, twice as long each time; then it is tried again, and
-- one more failure ejects it anew. One success clears it.
--
-- A failure of the same session as the one before does not count, so one session with jobs that make
-- nodes fail ejects none. How many nodes may be ejected at a time is up to the draw (draw.lua).

local function record_success(node)
  node.failures, node.ejections, node.ejected = 0, 0, 0
end

-- tenant, session: from the job's record; a job without a session stands for itself.
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
