-- Ends a run at once: open gates close as cancelled, unfinished calls get their interrupted
-- result, the fence moves so that nothing the holder does later counts.
-- ARGV[1] {id, acct, rev, subs_v, by, message?, calls = {{n, result}}, dropped?, dropped_events?,
--          event, eps, expiry?, frames}
-- expiry = {pause, event, eps}: it ends because nobody settled that pause in time.
-- Returns {'ok'} | {'missing'} | {'stale', what} | {'terminal', status}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then return {'terminal', run.status} end
if run.rev ~= A.rev then return {'stale', 'run'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
if given(A.expiry) then
  if not is_due(A.id, A.expiry.pause, 'expire') then return {'stale', 'expiry'} end
  emit(A.expiry.event, A.expiry.eps, run.acct, A.id, '')
end
for _, req in ipairs(redis.call('LRANGE', P .. 'gates:' .. A.id, 0, -1)) do
  local gate = load_gate(req)
  if gate.state == 'pending' then
    redis.call('HSET', P .. 'gate:' .. req, 'state', 'cancelled', 'by', A.by, 'resolved', int(NOW))
    close_gate(run, req, gate)
  end
end
for _, c in ipairs(A.calls) do
  redis.call('HSET', run.calls, c.n .. '.state', 'done', c.n .. '.result', blob(c.result))
end
if given(A.message) then
  redis.call('RPUSH', P .. 'msg:' .. A.id, blob(A.message))
  add(run, 'msgs', 1)
end
put(run, 'status', 'cancelled')
put(run, 'phase', 'model')
for _, name in ipairs({'open', 'todo', 'left', 'inflight'}) do put(run, name, '0') end
add(run, 'fence', 1)
end_lease(run)
redis.call('ZREM', P .. 'ready', A.id)
-- Queued messages are not delivered any more; each has its event.
redis.call('DEL', P .. 'inbox:' .. A.id)
put(run, 'queued', '0')
if given(A.dropped) then put(run, 'dropped', A.dropped) end
for _, item in ipairs(A.dropped_events or {}) do
  emit(item.event, item.eps, run.acct, A.id, '')
end
audit(run.acct, 'cancel', A.id, {'by', A.by})
emit(A.event, A.eps, run.acct, A.id, '')
frames(A.id)
save(run, true)
redis.call('PUBLISH', P .. 'held', A.id)
return {'ok'}
