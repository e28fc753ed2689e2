-- Counts one started call for an allow rule, once a call. KEYS[1] is the global prefix.
-- ARGV[1] {acct, id, token, release}; token: the call; release: it was counted and did not start.
-- Returns {granted 1|0, last 1|0}; last: the rule is used up with this one. A rule that is gone
-- grants: whoever starts the call is given the version of the rules and looks again.
local uses, used = P .. 'poluse:' .. A.acct, P .. 'polused:' .. A.acct .. ':' .. A.id
local stored = redis.call('HGET', P .. 'pol:' .. A.acct, A.id)
if not stored then return {1, 0} end
local max = cjson.decode(stored).max_uses
local n = tonumber(redis.call('HGET', uses, A.id .. ':n') or '0')
if A.release then
  if redis.call('ZREM', used, A.token) == 1 then redis.call('HINCRBY', uses, A.id .. ':n', -1) end
  return {1, 0}
end
if redis.call('ZSCORE', used, A.token) then return {1, 0} end
if given(max) and n >= max then return {0, 0} end
redis.call('ZADD', used, int(NOW), A.token)
redis.call('HSET', uses, A.id .. ':n', int(n + 1), A.id .. ':at', int(NOW))
if given(max) then return {1, n + 1 >= max and 1 or 0} end
-- Without a bound the calls are kept only as long as one of them may be taken up again.
redis.call('ZREMRANGEBYRANK', used, 0, -10001)
return {1, 0}
