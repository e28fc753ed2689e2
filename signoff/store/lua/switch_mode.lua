-- Changes the permission mode; autonomous also allows the named pending tool approvals.
-- ARGV[1] {id, acct, rev, rules_v, subs_v, mode, hitl, by, allow = {{req, fp}}, event, eps, frames}
-- Returns {'ok', resumed, hint} | {'missing'} | {'stale', what, pause?} | {'terminal', status}.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
if terminal(run) then return {'terminal', run.status} end
if run.rev ~= A.rev then return {'stale', 'run'} end
if stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end
if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
for _, g in ipairs(A.allow) do
  local pause = load_gate(g.req).pause
  if is_due(A.id, pause, 'expire') then return {'stale', 'expired', pause} end
end
if A.hitl then put(run, 'hitl', '1') end
if A.mode == 'plan' and run.mode ~= 'plan' then put(run, 'plan_ok', '0') end
put(run, 'mode', A.mode)
add(run, 'mode_v', 1)
audit(run.acct, 'mode', A.id, {'mode', A.mode, 'by', A.by})
for _, g in ipairs(A.allow) do
  settle(run, g.req, load_gate(g.req), {state = 'allowed', fp = g.fp, by = 'mode',
    call = 'allowed', grant = 'mode:' .. g.req})
end
local resumed = 0
if #A.allow > 0 and num(run, 'open') == 0 then
  put(run, 'status', 'running')
  emit(A.event, A.eps, run.acct, A.id, '')
  resumed = 1
end
frames(A.id)
return {'ok', resumed, wake(run)}
