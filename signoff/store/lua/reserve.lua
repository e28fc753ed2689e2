-- Claims an idempotency key for one request body. KEYS[1] is the global prefix.
-- ARGV[1] {key, digest, value, ttl_ms, guard?, rev?}; guard/rev: an endpoint that must not have
-- changed since the caller read it. Blobs: value
-- Returns {'new'} | {'same', value, answer} | {'other'} | {'stale'}.
if given(A.guard) and redis.call('HGET', A.guard, 'rev') ~= A.rev then return {'stale'} end
if redis.call('EXISTS', A.key) == 0 then
  redis.call('HSET', A.key, 'digest', A.digest, 'value', blob(A.value))
  redis.call('PEXPIRE', A.key, A.ttl_ms)
  return {'new'}
end
local v = redis.call('HMGET', A.key, 'digest', 'value', 'answer')
if v[1] ~= A.digest then return {'other'} end
return {'same', v[2], v[3] or ''}
