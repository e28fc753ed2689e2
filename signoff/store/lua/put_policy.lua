-- Stores a rule once per (user, tool, effect). KEYS[1] is the global prefix.
-- ARGV[1] {acct, index, policy}; blobs: index (the identity), policy (JSON of the rule)
-- Returns {id, created 1|0, stored JSON}.
local idx, pol = P .. 'polidx:' .. A.acct, P .. 'pol:' .. A.acct
local id = redis.call('HGET', idx, blob(A.index))
local stored = id and redis.call('HGET', pol, id)
if stored then return {tonumber(id), 0, stored} end
id = redis.call('INCR', P .. 'seq:policy')
redis.call('HSET', idx, blob(A.index), int(id))
redis.call('HSET', pol, int(id), blob(A.policy))
return {id, 1, blob(A.policy)}
