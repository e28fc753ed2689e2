-- Stores a rule once per (user, tool, effect); one that expired or is used up makes room.
-- KEYS[1] is the global prefix.
-- ARGV[1] {acct, index, policy}; blobs: index (the identity), policy (JSON of the rule)
-- Returns {id, created 1|0, stored JSON}.
local idx, pol = P .. 'polidx:' .. A.acct, P .. 'pol:' .. A.acct
local uses = P .. 'poluse:' .. A.acct
local id = redis.call('HGET', idx, blob(A.index))
local stored = id and redis.call('HGET', pol, id)
if stored then
  local old = cjson.decode(stored)
  local n = tonumber(redis.call('HGET', uses, id .. ':n') or '0')
  local over = given(old.expires) and old.expires <= NOW
  if not over and not (given(old.max_uses) and n >= old.max_uses) then
    return {tonumber(id), 0, stored}
  end
  redis.call('HDEL', pol, id)
  redis.call('HDEL', uses, id .. ':n', id .. ':at')
  redis.call('DEL', P .. 'polused:' .. A.acct .. ':' .. id)
end
id = redis.call('INCR', P .. 'seq:policy')
redis.call('HSET', idx, blob(A.index), int(id))
redis.call('HSET', pol, int(id), blob(A.policy))
return {id, 1, blob(A.policy)}
