-- A node's record of success and failure, and what follows from it: a node that fails `threshold`
-- times in a row is not chosen for a while, twice as long each time; then it is tried again, and
-- one more failure ejects it anew, one success clears it.

local function record_success(node)
  node.failures, node.ejections, node.ejected = 0, 0, 0
end

local function record_failure(node, threshold, eject_ms, eject_max_ms, now)
  node.failures = math.min(node.failures + 1, 255)
  if node.failures >= threshold and node.ejected <= now then
    node.ejected = now + math.min(eject_ms * 2 ^ node.ejections, eject_max_ms)
    node.ejections = math.min(node.ejections + 1, 255)
  end
end
