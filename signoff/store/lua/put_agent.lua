-- Finds the agent of (account, user, name) or makes it. KEYS[1] is the global prefix.
-- ARGV[1] {acct, scope, index, id?, fields = {name = blob position}}; with id a new agent of that
-- id is made in any case. Blobs: index, field values
-- Returns {id, agent hash flat}.
local names = P .. 'agents:' .. A.acct
local id = redis.call('HGET', names, blob(A.index))
if id and not given(A.id) then return {tonumber(id), redis.call('HGETALL', P .. 'agent:' .. id)} end
id = given(A.id) and tonumber(A.id) or redis.call('INCR', P .. 'seq:agent')
-- A name is the one's that had it first.
redis.call('HSETNX', names, blob(A.index), int(id))
local list = {'acct', A.acct, 'created', int(NOW), 'updated', int(NOW), 'index', blob(A.index)}
for name, position in pairs(A.fields) do
  list[#list + 1] = name
  list[#list + 1] = blob(position)
end
redis.call('HSET', P .. 'agent:' .. int(id), unpack(list))
redis.call('ZADD', P .. 'agids:' .. A.acct, id, int(id))
redis.call('ZADD', P .. 'agids:' .. A.acct .. ':' .. A.scope, id, int(id))
return {id, redis.call('HGETALL', P .. 'agent:' .. int(id))}
