-- Revokes a rule and gives its identity free. KEYS[1] is the global prefix.
-- ARGV[1] {acct, id, index}; blobs: index (the identity)  Returns 1, or 0 when it was gone.
local idx = P .. 'polidx:' .. A.acct
if redis.call('HGET', idx, blob(A.index)) == A.id then redis.call('HDEL', idx, blob(A.index)) end
redis.call('HDEL', P .. 'poluse:' .. A.acct, A.id .. ':n', A.id .. ':at')
redis.call('DEL', P .. 'polused:' .. A.acct .. ':' .. A.id)
return redis.call('HDEL', P .. 'pol:' .. A.acct, A.id)
