-- Creates a run that is ready for its first model call; idempotent by run id.
-- ARGV[1] {id, acct, user?, scope, agent, mode, hitl, config, message, event, eps, subs_v,
--          limits?, frames, shard, shards}; blobs: config, message, event body, frames.
-- limits = {v, period, runs?, cost?, rate?, used, spent, started}: the caps of the run's end user, and what
-- other shards know of them.
-- Returns {'ok', hint, run hash flat} | {'exists'} | {'stale', 'subs' | 'limits'} |
-- {'limited', 'runs' | 'cost'} | {'limited', 'rate', wait in ms}.
local run = load(A.id)
if run.acct then return {'exists'} end
if stale_version('subs', A.acct, A.subs_v) then return {'stale', 'subs'} end
if given(A.limits) then
  local limits, use = A.limits, A.scope .. ':' .. A.limits.period
  if stale_version('limits', A.acct, limits.v) then return {'stale', 'limits'} end
  if given(limits.runs) then
    local used = redis.call('HGET', P .. 'use:' .. A.acct .. ':' .. use, 'runs') or '0'
    if tonumber(used) + limits.used >= limits.runs then return {'limited', 'runs'} end
  end
  if given(limits.cost) then
    local spent = redis.call('HGET', P .. 'use:' .. A.acct .. ':' .. use, 'cost_micros') or '0'
    if tonumber(spent) + limits.spent >= limits.cost then return {'limited', 'cost'} end
  end
  if given(limits.rate) then
    local starts = P .. 'starts:' .. A.acct .. ':' .. A.scope
    redis.call('ZREMRANGEBYSCORE', starts, '-inf', int(NOW - 60000))
    local started = redis.call('ZCARD', starts) + limits.started
    if started >= limits.rate then
      local oldest = redis.call('ZRANGE', starts, 0, 0, 'WITHSCORES')[2] or int(NOW)
      return {'limited', 'rate', int(tonumber(oldest) + 60000 - NOW)}
    end
    redis.call('ZADD', starts, int(NOW), A.id)
    redis.call('PEXPIRE', starts, 60000)
  end
  redis.call('HSET', run.key, 'use', use)
  count_use(A.acct, use, {runs = 1})
end
run.acct, run.status, run.phase = A.acct, 'running', 'model'
redis.call('HSET', run.key, 'acct', A.acct, 'scope', A.scope, 'agent', A.agent, 'acted', '0',
  'status', 'running', 'phase', 'model', 'mode', A.mode, 'mode_v', '1', 'hitl', A.hitl,
  'plan_ok', '0', 'turn', '1',
  'step', '0', 'turn_steps', '0', 'fence', '0', 'lease_until', '0', 'wake', '0', 'rev', '1',
  'pause_n', '0', 'open', '0', 'todo', '0', 'left', '0', 'inflight', '0', 'seq', '0',
  'takeovers', '0', 'msgs', '1', 'created', int(NOW), 'updated', int(NOW),
  'config', blob(A.config))
if given(A.user) then redis.call('HSET', run.key, 'user', blob(A.user)) end
redis.call('RPUSH', P .. 'msg:' .. A.id, blob(A.message))
redis.call('ZADD', P .. 'runs:' .. A.acct, A.id, A.id)
redis.call('ZADD', P .. 'runs:' .. A.acct .. ':' .. A.scope, A.id, A.id)
keep('live:' .. A.acct .. ':' .. A.scope, A.id, true)
keep('busy:' .. A.acct .. ':' .. A.agent, A.id, true)
redis.call('HSET', P .. 'active:' .. A.acct, A.agent, int(NOW))
redis.call('HSET', P .. 'changed:' .. A.acct, A.scope, int(NOW))
emit(A.event, A.eps, A.acct, A.id, '')
frames(A.id)
return {'ok', make_ready(run, false), redis.call('HGETALL', run.key)}
