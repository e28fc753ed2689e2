-- Creates a run that is ready for its first model call; idempotent by run id.
-- ARGV[1] {id, acct, user?, scope, agent, mode, hitl, config, message, event, eps, subs_v,
--          frames, shard, shards}; blobs: config, message, event body, frames.
-- Returns {'ok', hint, run hash flat} | {'exists'} | {'stale', 'subs'}.
local run = load(A.id)
if run.acct then return {'exists'} end
if stale_version('subs', A.acct, A.subs_v) then return {'stale', 'subs'} end
run.acct, run.status, run.phase = A.acct, 'running', 'model'
redis.call('HSET', run.key, 'acct', A.acct, 'agent', A.agent, 'status', 'running',
  'phase', 'model', 'mode', A.mode, 'mode_v', '1', 'hitl', A.hitl, 'plan_ok', '0', 'turn', '1',
  'step', '0', 'turn_steps', '0', 'fence', '0', 'lease_until', '0', 'wake', '0', 'rev', '1',
  'pause_n', '0', 'open', '0', 'todo', '0', 'left', '0', 'inflight', '0', 'seq', '0',
  'takeovers', '0', 'msgs', '1', 'created', int(NOW), 'updated', int(NOW),
  'config', blob(A.config))
if given(A.user) then redis.call('HSET', run.key, 'user', blob(A.user)) end
redis.call('RPUSH', P .. 'msg:' .. A.id, blob(A.message))
redis.call('ZADD', P .. 'runs:' .. A.acct, A.id, A.id)
redis.call('ZADD', P .. 'runs:' .. A.acct .. ':' .. A.scope, A.id, A.id)
emit(A.event, A.eps, A.acct, A.id, '')
frames(A.id)
return {'ok', make_ready(run, false), redis.call('HGETALL', run.key)}
