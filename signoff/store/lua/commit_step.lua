-- The holder's commit of one model call: messages, the step's calls with their verdicts, the
-- gates as one pause, or the end of the turn; with every event and delivery. Idempotent by
-- commit id. With A.release the lease ends in the same script when nothing is due.
-- ARGV[1] {id, fence, commit, wake, mode_v, rules_v, subs_v, messages, calls, gates, pause_event,
--          status?, output?, error?, error_code?, end_event?, usage, release, counts, frames}
-- calls = {{id, tool, input, digest, state, grant?, eff, result?}}, gates = {{id, kind, n, suggested}}
-- Returns {'ok', released, wake} | {'lost'} | {'stale', what}.
local key, calls = P .. 'run:' .. A.id, P .. 'calls:' .. A.id
local run = read(key)
if run.fence ~= A.fence or terminal(run) then
  if run.last_commit == A.commit then return {'ok', run.lease_until == '0' and 1 or 0, run.wake} end
  return {'lost'}
end
if run.last_commit == A.commit then return {'ok', run.lease_until == '0' and 1 or 0, run.wake} end
if given(A.mode_v) and run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
if given(A.rules_v) and stale_version('rules', run.acct, A.rules_v) then return {'stale', 'rules'} end
if given(A.subs_v) and stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
for _, i in ipairs(A.messages) do redis.call('RPUSH', P .. 'msg:' .. A.id, blob(i)) end
run.step = int(redis.call('HINCRBY', key, 'step', 1))
redis.call('HINCRBY', key, 'turn_steps', 1)
redis.call('HINCRBY', key, 'msgs', #A.messages)
for name, n in pairs(A.usage) do redis.call('HINCRBY', key, name, n) end
redis.call('HSET', key, 'last_commit', A.commit, 'takeovers', '0')
redis.call('DEL', calls)
local left, todo = #A.calls, 0
for n, c in ipairs(A.calls) do
  local i = (n - 1) .. '.'
  redis.call('HSET', calls, i .. 'id', blob(c.id), i .. 'tool', blob(c.tool),
    i .. 'input', blob(c.input), i .. 'digest', c.digest, i .. 'run_digest', c.digest,
    i .. 'state', c.state, i .. 'eff', c.eff, i .. 'grant', c.grant or '', i .. 'attempt', '0')
  if c.state == 'done' then
    redis.call('HSET', calls, i .. 'result', blob(c.result))
    left = left - 1
  elseif c.state == 'allowed' then
    redis.call('HSET', calls, i .. 'seq', int(redis.call('HINCRBY', key, 'seq', 1)))
    todo = todo + 1
  end
end
if #A.calls > 0 then redis.call('HSET', calls, 'count', #A.calls) end
run.phase = #A.calls > 0 and 'calls' or 'model'
run.left, run.todo, run.inflight = left, todo, 0
redis.call('HSET', key, 'phase', run.phase, 'left', left, 'todo', todo, 'inflight', '0')
if #A.gates > 0 then
  local pause = open_gates(A.id, run, A.gates)
  emit(A.pause_event, A.eps, run.acct, A.id, pause)
end
if given(A.status) then
  set_status(A.id, run, A.status)
  redis.call('HSET', key, 'output', blob(A.output), 'error', blob(A.error),
    'error_code', A.error_code or '')
  emit(A.end_event, A.end_eps, run.acct, A.id, '')
end
frames(A.id)
touch(key)
local released = 0
if terminal(run) or (A.release and run.wake == A.wake and not due(run)) then
  redis.call('HSET', key, 'lease_until', '0')
  redis.call('ZREM', P .. 'leases', A.id)
  released = 1
end
return {'ok', released, run.wake}
