-- Starts the next turn of a run that has ended: by a reply, or (fence given) by the holder that
-- takes the oldest queued message.
-- ARGV[1] {id, acct, rev, fence?, message_id, messages, mode?, hitl?, config?, plan_again,
--          events = {{event, eps}}, subs_v, frames}; blobs: messages, config
-- Returns {'ok', hint} | {'exists'} | {'missing'} | {'lost'} | {'stale', what}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
local queued = given(A.fence)
if queued and run.fence ~= A.fence then return {'lost'} end
if not queued and redis.call('SISMEMBER', P .. 'mids:' .. A.id, A.message_id) == 1 then
  return {'exists'}
end
if run.rev ~= A.rev or not terminal(run) then return {'stale', 'run'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
if queued then
  redis.call('LPOP', P .. 'inbox:' .. A.id)
  add(run, 'queued', -1)
else
  redis.call('SADD', P .. 'mids:' .. A.id, A.message_id)
end
-- A gate that a failure left open belongs to the turn that is over.
if num(run, 'open') > 0 then
  for _, req in ipairs(redis.call('LRANGE', P .. 'gates:' .. A.id, 0, -1)) do
    local gate = load_gate(req)
    if gate.state == 'pending' then
      redis.call('HSET', P .. 'gate:' .. req, 'state', 'cancelled', 'by', 'turn',
        'resolved', int(NOW))
      close_gate(run, req, gate)
    end
  end
end
for _, i in ipairs(A.messages) do redis.call('RPUSH', P .. 'msg:' .. A.id, blob(i)) end
add(run, 'msgs', #A.messages)
add(run, 'turn', 1)
put(run, 'turn_steps', '0')
put(run, 'status', 'running')
put(run, 'phase', 'model')
put(run, 'error', '')
put(run, 'error_code', '')
put(run, 'takeovers', '0')
for _, name in ipairs({'open', 'todo', 'left', 'inflight'}) do put(run, name, '0') end
if given(A.mode) then
  put(run, 'mode', A.mode)
  add(run, 'mode_v', 1)
end
if given(A.hitl) then put(run, 'hitl', A.hitl) end
if A.plan_again then put(run, 'plan_ok', '0') end
if given(A.config) then put(run, 'config', blob(A.config)) end
put(run, 'turn_started', int(NOW))
redis.call('DEL', run.calls)
for _, item in ipairs(A.events) do emit(item.event, item.eps, run.acct, A.id, '') end
frames(A.id)
save(run, true)
if queued then return {'ok', 0} end
return {'ok', make_ready(run, true)}
