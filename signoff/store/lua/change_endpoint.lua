-- Changes an endpoint that is still there; a late change never leaves half of a deleted one.
-- KEYS[1] is the global prefix.
-- ARGV[1] {id, rotate, fields = {name = blob position}}; blobs: field values. With A.rotate the
-- secret that stands by now becomes the previous one, whoever made it.
-- Returns the endpoint flat as this change left it; empty when it is gone.
local key = P .. 'ep:' .. A.id
if redis.call('EXISTS', key) == 0 then return {} end
if A.rotate then redis.call('HSET', key, 'secret2', redis.call('HGET', key, 'secret')) end
for name, position in pairs(A.fields) do redis.call('HSET', key, name, blob(position)) end
redis.call('HINCRBY', key, 'rev', 1)
return redis.call('HGETALL', key)
