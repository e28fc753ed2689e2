-- Changes an agent. KEYS[1] is the global prefix.
-- ARGV[1] {acct, id, from?, index, renamed, free, fields = {name = blob position}, drop = {names}}
-- from: the states that it may be in; index: its identity (user, name), as it is to be when renamed;
-- free: it gives its name free. Blobs: index, field values
-- Returns {'ok', agent flat} | {'missing'} | {'state', state}.
local key, names = P .. 'agent:' .. A.id, P .. 'agents:' .. A.acct
if redis.call('HGET', key, 'acct') ~= A.acct then return {'missing'} end
local state = redis.call('HGET', key, 'state') or 'enabled'
if given(A.from) then
  local may = false
  for _, name in ipairs(A.from) do may = may or name == state end
  if not may then return {'state', state} end
end
local before = redis.call('HGET', key, 'index') or blob(A.index)
local index = A.renamed and blob(A.index) or before
if before ~= index or A.free then
  if redis.call('HGET', names, before) == A.id then redis.call('HDEL', names, before) end
end
for name, position in pairs(A.fields) do redis.call('HSET', key, name, blob(position)) end
if #A.drop > 0 then redis.call('HDEL', key, unpack(A.drop)) end
redis.call('HSET', key, 'updated', int(NOW), 'index', index)
-- A name is the one's that had it first.
state = redis.call('HGET', key, 'state') or 'enabled'
if state ~= 'archived' then redis.call('HSETNX', names, index, A.id) end
return {'ok', redis.call('HGETALL', key)}
