-- Changes the profile of an end user that is still there. KEYS[1] is the global prefix.
-- ARGV[1] {acct, scope, fields = {name = blob position}, drop = {names}}; blobs: field values
-- Returns the profile flat; empty when there is none.
local key = P .. 'user:' .. A.acct .. ':' .. A.scope
if redis.call('EXISTS', key) == 0 then return {} end
for name, position in pairs(A.fields) do redis.call('HSET', key, name, blob(position)) end
if #A.drop > 0 then redis.call('HDEL', key, unpack(A.drop)) end
redis.call('HSET', key, 'updated', int(NOW))
return redis.call('HGETALL', key)
