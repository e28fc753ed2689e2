-- The holder ends a run as failed without a model answer; the history stays as it is.
-- ARGV[1] {id, fence, error, error_code, event, eps, subs_v, mode_v, frames}
-- Returns {'ok'} | {'lost'} | {'stale', what}.
local run = load(A.id)
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
put(run, 'status', 'failed')
put(run, 'error', blob(A.error))
put(run, 'error_code', A.error_code)
end_lease(run)
-- Its open gates stay pending for the record, but nobody is asked any more.
if num(run, 'open') > 0 then
  for _, req in ipairs(redis.call('LRANGE', P .. 'gates:' .. A.id, 0, -1)) do
    local gate = load_gate(req)
    if gate.state == 'pending' then
      redis.call('ZREM', P .. 'open:' .. run.acct, run.id .. ':' .. req)
      supersede(run.id, gate.pause)
      drop_times(run.id, gate.pause)
    end
  end
end
emit(A.event, A.eps, run.acct, A.id, '')
frames(A.id)
save(run, true)
if due(run) then make_ready(run, true) end
return {'ok'}
