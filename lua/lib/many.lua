-- Commands with any number of words. One command takes no more than Lua's stack can hold.

-- Even, so that names and values, or scores and members, stay together.
local WORDS_AT_ONCE = 1000

-- Gives a command as often as it takes to pass all the words.
local function call_many(command, key, words)
  for from = 1, #words, WORDS_AT_ONCE do
    redis.call(command, key, unpack(words, from, math.min(from + WORDS_AT_ONCE - 1, #words)))
  end
end
