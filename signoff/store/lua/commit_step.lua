-- The holder's commit of one model call: messages, the step's calls with their verdicts, the
-- gates as one pause, or the end of the turn; with every event and delivery. Idempotent by
-- commit id. With A.release the lease ends in the same script when nothing is due.
-- ARGV[1] {id, fence, commit, wake, mode_v, rules_v, subs_v, messages, calls, gates, pause_event,
--          times?, status?, output?, output_data?, error?, error_code?, end_event?, usage, release,
--          counts, frames, saved?}
-- calls = {{id, tool, input, digest, state, grant?, eff, result?}}, gates = {{id, kind, n, suggested, approvers?}}
-- Returns {'ok', released, wake} | {'lost'} | {'stale', what}.
local run = load(A.id)
if run.last_commit == A.commit then
  return {'ok', run.lease_until == '0' and 1 or 0, run.wake}
end
if run.fence ~= A.fence or terminal(run) then return {'lost'} end
if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end
if given(A.subs_v) and stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
if times_stale() then return {'stale', 'times'} end
for _, i in ipairs(A.messages) do redis.call('RPUSH', P .. 'msg:' .. A.id, blob(i)) end
if given(A.saved) then redis.call('SET', P .. 'saved:' .. A.id, blob(A.saved)) end
add(run, 'step', 1)
add(run, 'turn_steps', 1)
add(run, 'msgs', #A.messages)
for name, n in pairs(A.usage) do redis.call('HINCRBY', run.key, name, n) end
if run.use then count_use(run.acct, run.use, A.usage) end
put(run, 'last_commit', A.commit)
put(run, 'takeovers', '0')
local left, todo, fields = #A.calls, 0, {}
local function field(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
for n, c in ipairs(A.calls) do
  local i = (n - 1) .. '.'
  field(i .. 'id', blob(c.id))
  field(i .. 'tool', blob(c.tool))
  field(i .. 'input', blob(c.input))
  field(i .. 'digest', c.digest)
  field(i .. 'run_digest', c.digest)
  field(i .. 'state', c.state)
  field(i .. 'eff', c.eff)
  field(i .. 'grant', c.grant or '')
  field(i .. 'attempt', '0')
  if c.state == 'done' then
    field(i .. 'result', blob(c.result))
    left = left - 1
  elseif c.state == 'allowed' then
    field(i .. 'seq', int(add(run, 'seq', 1)))
    todo = todo + 1
  end
end
redis.call('DEL', run.calls)
if #A.calls > 0 then redis.call('HSET', run.calls, 'count', #A.calls, unpack(fields)) end
put(run, 'phase', #A.calls > 0 and 'calls' or 'model')
put(run, 'left', int(left))
put(run, 'todo', int(todo))
put(run, 'inflight', '0')
if #A.gates > 0 then
  local pause = open_gates(run, A.gates)
  emit(A.pause_event, A.eps, run.acct, A.id, pause)
end
if given(A.status) then
  put(run, 'status', A.status)
  put(run, 'output', blob(A.output))
  if given(A.output_data) then put(run, 'output_data', blob(A.output_data)) end
  put(run, 'error', blob(A.error))
  put(run, 'error_code', A.error_code)
  emit(A.end_event, A.end_eps, run.acct, A.id, '')
end
frames(A.id)
local released = 0
if terminal(run) or (A.release and run.wake == A.wake and not due(run)) then
  end_lease(run)
  released = 1
end
save(run, true)
if released == 1 and due(run) then make_ready(run, true) end
return {'ok', released, run.wake}
