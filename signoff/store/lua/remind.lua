-- Announces that a pause still waits, once: the entry goes with the event.
-- ARGV[1] {id, acct, pause, gates = {ids}, mode_v, subs_v, event, eps}
-- Returns {'ok'} | {'gone'} | {'missing'} | {'stale', what}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then
  drop_times(A.id, A.pause)
  return {'gone'}
end
if not is_due(A.id, A.pause, 'remind') then return {'gone'} end
if is_due(A.id, A.pause, 'expire') then
  -- Nobody looked for so long that it is too late to remind.
  redis.call('ZREM', P .. 'timed', time_entry(A.id, A.pause, 'remind'))
  return {'gone'}
end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
for _, req in ipairs(A.gates) do
  if load_gate(req).state ~= 'pending' then return {'stale', 'gates'} end
end
redis.call('ZREM', P .. 'timed', time_entry(A.id, A.pause, 'remind'))
emit(A.event, A.eps, run.acct, A.id, A.pause)
audit(run.acct, 'reminder', A.id, {'pause', A.pause})
return {'ok'}
