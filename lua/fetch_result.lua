-- fetch_result: reads a kept result. The result stays until it expires.
--
-- @arg job text
-- Returns the result, or nothing.

return redis.call('GET', P .. ':job:' .. job .. ':result')
