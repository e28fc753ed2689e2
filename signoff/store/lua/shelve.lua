-- Archives a run or takes it back; repeats change nothing. Its status and revision stay.
-- ARGV[1] {id, acct, scope, archived = bool}
-- Returns {'ok'} | {'missing'}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
local already = redis.call('HEXISTS', run.key, 'archived') == 1
if already == A.archived then return {'ok'} end
if A.archived then
  redis.call('HSET', run.key, 'scope', A.scope, 'archived', int(NOW))
else
  redis.call('HDEL', run.key, 'archived')
end
for _, list in ipairs({A.acct, A.acct .. ':' .. A.scope}) do
  keep('runs:' .. list, A.id, not A.archived)
  keep('archived:' .. list, A.id, A.archived)
end
relist(run)
return {'ok'}
