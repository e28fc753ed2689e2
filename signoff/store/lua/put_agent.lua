-- Finds the agent of (account, user, name) or makes it. KEYS[1] is the global prefix.
-- ARGV[1] {acct, index, fields = {name = blob position}}; blobs: index, field values
-- Returns {id, agent hash flat}.
local names = P .. 'agents:' .. A.acct
local id = redis.call('HGET', names, blob(A.index))
if id then return {tonumber(id), redis.call('HGETALL', P .. 'agent:' .. id)} end
id = redis.call('INCR', P .. 'seq:agent')
redis.call('HSET', names, blob(A.index), int(id))
local list = {'acct', A.acct, 'created', int(NOW), 'updated', int(NOW)}
for name, position in pairs(A.fields) do
  list[#list + 1] = name
  list[#list + 1] = blob(position)
end
redis.call('HSET', P .. 'agent:' .. int(id), unpack(list))
return {id, redis.call('HGETALL', P .. 'agent:' .. int(id))}
