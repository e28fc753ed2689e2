-- Changes an endpoint that is still there; a late change never leaves half of a deleted one.
-- KEYS[1] is the global prefix.
-- ARGV[1] {id, fields = {name = blob position}}; blobs: field values  Returns 1, or 0 when gone.
local key = P .. 'ep:' .. A.id
if redis.call('EXISTS', key) == 0 then return 0 end
for name, position in pairs(A.fields) do redis.call('HSET', key, name, blob(position)) end
redis.call('HINCRBY', key, 'rev', 1)
return 1
