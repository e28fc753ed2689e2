-- Makes the profile of an end user unless there is one. KEYS[1] is the global prefix.
-- ARGV[1] {acct, scope, user, fields = {name = blob position}}; blobs: user id, field values
-- Returns {created 1|0, profile flat}.
local key = P .. 'user:' .. A.acct .. ':' .. A.scope
local raw = redis.call('HGETALL', key)
if #raw > 0 then return {0, raw} end
local id = redis.call('INCR', P .. 'seq:user')
local list = {'id', int(id), 'user', blob(A.user), 'created', int(NOW), 'updated', int(NOW)}
for name, position in pairs(A.fields) do
  list[#list + 1] = name
  list[#list + 1] = blob(position)
end
redis.call('HSET', key, unpack(list))
redis.call('ZADD', P .. 'users:' .. A.acct, id, A.scope)
return {1, redis.call('HGETALL', key)}
