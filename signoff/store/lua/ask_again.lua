-- The holder opens gates for calls of the current step that may not run as they stand: a mode or
-- rule that moved, or a started call whose outcome nobody knows. Always a new pause.
-- ARGV[1] {id, fence, mode_v, rules_v, subs_v, pause_n, gates, times?, pause_event, eps, frames}
-- Returns {'ok'} | {'lost'} | {'stale', what}.
local run = load(A.id)
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
if redis.call('EXISTS', P .. 'gate:' .. A.gates[1].id) == 1 then return {'ok'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end -- who may decide
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
if run.pause_n ~= A.pause_n then return {'stale', 'pause'} end -- the event names its number
if times_stale() then return {'stale', 'times'} end
local counter = {allowed = 'todo', started = 'inflight'}
for _, g in ipairs(A.gates) do
  local name = counter[redis.call('HGET', run.calls, g.n .. '.state')]
  if not name then return {'stale', 'calls'} end
  add(run, name, -1)
end
local pause = open_gates(run, A.gates)
emit(A.pause_event, A.eps, run.acct, A.id, pause)
put(run, 'takeovers', '0')
frames(A.id)
save(run, true)
return {'ok'}
