-- Ends a run at once: open gates close as cancelled, unfinished calls get their interrupted
-- result, the fence moves so that nothing the holder does later counts.
-- ARGV[1] {id, acct, rev, subs_v, by, message?, calls = {{n, result}}, event, eps, frames}
-- Returns {'ok'} | {'missing'} | {'stale', what} | {'terminal', status}.
local key, calls = P .. 'run:' .. A.id, P .. 'calls:' .. A.id
local run = read(key)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then return {'terminal', run.status} end
if run.rev ~= A.rev then return {'stale', 'run'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
for _, req in ipairs(redis.call('LRANGE', P .. 'gates:' .. A.id, 0, -1)) do
  local gate = read(P .. 'gate:' .. req)
  if gate.state == 'pending' then
    redis.call('HSET', P .. 'gate:' .. req, 'state', 'cancelled', 'by', A.by, 'resolved', int(NOW))
    redis.call('ZREM', P .. 'open:' .. run.acct, A.id .. ':' .. req)
    if redis.call('HINCRBY', P .. 'pauses:' .. A.id, gate.pause, -1) == 0 then
      supersede(A.id, gate.pause)
    end
  end
end
for _, c in ipairs(A.calls) do
  redis.call('HSET', calls, c.n .. '.state', 'done', c.n .. '.result', blob(c.result))
end
if given(A.message) then
  redis.call('RPUSH', P .. 'msg:' .. A.id, blob(A.message))
  redis.call('HINCRBY', key, 'msgs', 1)
end
set_status(A.id, run, 'cancelled')
redis.call('HINCRBY', key, 'fence', 1)
redis.call('HSET', key, 'phase', 'model', 'lease_until', '0', 'open', '0', 'todo', '0', 'left', '0',
  'inflight', '0')
redis.call('ZREM', P .. 'leases', A.id)
redis.call('ZREM', P .. 'ready', A.id)
audit(run.acct, 'cancel', A.id, {'by', A.by})
emit(A.event, A.eps, run.acct, A.id, '')
frames(A.id)
touch(key)
redis.call('PUBLISH', P .. 'held', A.id)
return {'ok'}
