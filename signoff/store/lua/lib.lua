-- Shared by every script that works inside one shard; put in front of each of them.
-- KEYS[1]  the shard's key prefix, e.g. "sg:{s0}:"; every other key is built from it, so all
--          keys of a script share one cluster slot.
-- ARGV[1]  a JSON object of control values; strangers' text never travels in it but in
--          ARGV[2..], referred to by position ("blobs"), so that no byte of it is re-encoded.
-- Time is the server's clock in Unix milliseconds: one clock for leases and due times.
local P = KEYS[1]
local A = cjson.decode(ARGV[1])
local T = redis.call('TIME')
local NOW = tonumber(T[1]) * 1000 + math.floor(tonumber(T[2]) / 1000)
local START_CLASS = 1e12

local function int(x) return string.format('%.0f', x) end
local function given(x) return x ~= nil and x ~= cjson.null end
local function blob(i) if given(i) then return ARGV[i] end return '' end

-- A run as the scripts need it: its hot fields in one read, its changes in one write (save).
-- Values are text, as Redis keeps them; a missing field is nil.
local HOT = {'acct', 'status', 'phase', 'mode', 'mode_v', 'fence', 'lease_until', 'wake', 'rev',
  'step', 'turn', 'turn_steps', 'msgs', 'queued', 'pause_n', 'open', 'todo', 'left', 'inflight', 'seq', 'takeovers',
  'crashed', 'last_commit', 'use'}
local function load(id)
  local key = P .. 'run:' .. id
  local values = redis.call('HMGET', key, unpack(HOT))
  local run = {id = id, key = key, calls = P .. 'calls:' .. id, changed = {}}
  for i = 1, #HOT do if values[i] then run[HOT[i]] = values[i] end end
  run.was = run.status
  return run
end

local function put(run, name, value)
  run[name] = value
  local changed = run.changed
  changed[#changed + 1] = name
  changed[#changed + 1] = value
  -- What long polls wait for.
  if name == 'status' or name == 'open' then run.shown = true end
end

local function num(run, name) return tonumber(run[name] or '0') end

local function add(run, name, n)
  local value = num(run, name) + n
  put(run, name, int(value))
  return value
end

local function keep(name, id, wanted)
  if wanted then
    redis.call('ZADD', P .. name, id, id)
  else
    redis.call('ZREM', P .. name, id)
  end
end

-- What its agent does, and the lists of its scope that a run stands in by its status: those that are not over, those that
-- wait for a person, the newest of each agent that is over. An archived run stands in none.
local function relist(run)
  local v = redis.call('HMGET', run.key, 'scope', 'archived', 'agent')
  if not v[1] then return end
  local scope, shown = run.acct .. ':' .. v[1], not v[2]
  local over = run.status == 'completed' or run.status == 'failed' or run.status == 'cancelled'
  local blocked = shown and run.status == 'awaiting_approval'
  keep('live:' .. scope, run.id, shown and not over)
  keep('busy:' .. run.acct .. ':' .. v[3], run.id, not over)
  redis.call('HSET', P .. 'active:' .. run.acct, v[3], int(NOW))
  keep('blocked:' .. scope, run.id, blocked)
  keep('blocked:' .. run.acct, run.id, blocked)
  if over then
    local settled = P .. 'settled:' .. scope
    local newest = tonumber(redis.call('HGET', settled, v[3]) or '0')
    if shown and tonumber(run.id) > newest then redis.call('HSET', settled, v[3], run.id) end
    if not shown and tonumber(run.id) == newest then redis.call('HDEL', settled, v[3]) end
  end
  redis.call('HSET', P .. 'changed:' .. run.acct, v[1], int(NOW))
  run.was = run.status
end

-- Writes what was put since the last save; with moved, the run's revision moves as well.
local function save(run, moved)
  if moved then
    add(run, 'rev', 1)
    put(run, 'updated', int(NOW))
  end
  if #run.changed > 0 then
    redis.call('HSET', run.key, unpack(run.changed))
    run.changed = {}
  end
  if run.shown then
    redis.call('PUBLISH', P .. 'shown', run.id)
    run.shown = nil
  end
  if run.status ~= run.was then relist(run) end
end

local function terminal(run)
  return run.status == 'completed' or run.status == 'failed' or run.status == 'cancelled'
end

-- Work is due when a model call is next, an allowed call waits, every call has its result, or
-- a started call has none while nobody holds the run; after the end, when a message waits.
local function due(run)
  if terminal(run) then return num(run, 'queued') > 0 end
  if run.phase == 'model' then return true end
  return num(run, 'todo') > 0 or num(run, 'left') == 0 or num(run, 'inflight') > 0
end

local function leased(run) return num(run, 'lease_until') > NOW end

-- 1 when a hint has to wake a worker: no drainer with room is awake.
local function hint_needed()
  local awake = redis.call('ZRANGEBYSCORE', P .. 'awake', '(' .. int(NOW), '+inf')
  for _, drainer in ipairs(awake) do
    if tonumber(redis.call('HGET', P .. 'room', drainer) or '0') > 0 then return 0 end
  end
  return 1
end

-- Queues a run. Start-time fair queueing between accounts; resumes stand before starts.
local function make_ready(run, resume)
  local class = resume and 'r' or 's'
  local name = class .. ':' .. run.acct
  local v = tonumber(redis.call('HGET', P .. 'vtime', class) or '0')
  local f = tonumber(redis.call('HGET', P .. 'vtime', name) or '0')
  local tag = math.max(v, f)
  local score = resume and tag or tag + START_CLASS
  if redis.call('ZADD', P .. 'ready', 'NX', int(score), run.id) == 1 then
    redis.call('HSET', P .. 'vtime', name, int(tag + 1))
  end
  -- Whoever was woken for the first takes all; a lost wake-up is covered by polling.
  if redis.call('ZCARD', P .. 'ready') == 1 then redis.call('PUBLISH', P .. 'wake', run.id) end
  return hint_needed()
end

-- After a change that needs no lease: save it, tell the holder or queue the run. Returns the
-- hint flag.
local function wake(run)
  add(run, 'wake', 1)
  save(run, true)
  if leased(run) then
    redis.call('PUBLISH', P .. 'held', run.id)
    return 0
  end
  if due(run) then return make_ready(run, true) end
  return 0
end

local function stale_version(what, acct, expected)
  return (redis.call('HGET', P .. 'ver', what .. ':' .. acct) or '0') ~= expected
end

-- What an end user has used in a month, as this shard knows it; kept for a year and a month.
-- use = "<scope>:<month>", which a run keeps: what it uses counts for the month of its start.
local KEEP_USE_MS = 34214400000
local function count_use(acct, use, amounts)
  local key = P .. 'use:' .. acct .. ':' .. use
  for name, n in pairs(amounts) do redis.call('HINCRBY', key, name, n) end
  redis.call('HSET', key, 'at', int(NOW))
  redis.call('PEXPIRE', key, int(KEEP_USE_MS))
end

-- The deliveries of an event; emit notes how they are numbered.
local function deliveries(event)
  local v, ids = redis.call('HMGET', P .. 'ev:' .. event, 'dfirst', 'dcount', 'dstep'), {}
  for i = 0, tonumber(v[2] or '0') - 1 do ids[#ids + 1] = int(v[1] + i * v[3]) end
  return ids
end

-- True while one of the deliveries is to be made.
local function undelivered(ids)
  for _, id in ipairs(ids) do
    local state = redis.call('HGET', P .. 'dlv:' .. id, 'state')
    if state == 'pending' or state == 'leased' then return true end
  end
  return false
end

local function drop_event(event, ids)
  for _, id in ipairs(ids) do
    local ep = redis.call('HGET', P .. 'dlv:' .. id, 'ep')
    if ep then redis.call('ZREM', P .. 'dlvs:' .. ep, id) end
    redis.call('DEL', P .. 'dlv:' .. id, P .. 'att:' .. id)
  end
  redis.call('DEL', P .. 'ev:' .. event)
end

-- Drops the oldest events of an account from its log, some at a time: those past keeping, and
-- those that are too many, with what is known of their deliveries. One that is still to be
-- delivered is kept outside the log.
local KEEP_MS, KEEP_EVENTS = 2592000000, 100000
local function forget_events(acct)
  local index = P .. 'evs:' .. acct
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', int(NOW - KEEP_MS), 'LIMIT', 0, 200)
  if #old == 0 and redis.call('ZCARD', index) > KEEP_EVENTS then
    old = redis.call('ZRANGE', index, 0, 199)
  end
  for _, id in ipairs(old) do
    local ids = deliveries(id)
    if undelivered(ids) then
      redis.call('PEXPIRE', P .. 'ev:' .. id, int(KEEP_MS))
    else
      drop_event(id, ids)
    end
  end
  if #old > 0 then redis.call('ZREM', index, unpack(old)) end
end

-- Writes one event and a due delivery for each endpoint. ev = {id, type, body}, eps = {ids}.
local function emit(ev, eps, acct, run_id, pause)
  redis.call('HSET', P .. 'ev:' .. ev.id, 'type', ev.type, 'body', blob(ev.body), 'acct', acct,
    'run', run_id, 'at', int(NOW))
  redis.call('ZADD', P .. 'evs:' .. acct, int(NOW), ev.id)
  if NOW % 64 == 0 then forget_events(acct) end
  if #eps == 0 then return end
  for i, ep in ipairs(eps) do
    local n = redis.call('INCR', P .. 'dseq')
    local id = int((n - 1) * A.shards + A.shard + 1)
    if i == 1 then
      redis.call('HSET', P .. 'ev:' .. ev.id, 'dfirst', id, 'dcount', #eps, 'dstep', A.shards)
    end
    redis.call('HSET', P .. 'dlv:' .. id, 'ev', ev.id, 'ep', ep, 'acct', acct, 'run', run_id,
      'type', ev.type, 'pause', pause, 'state', 'pending', 'n', '0', 'created', int(NOW),
      'next', int(NOW))
    redis.call('ZADD', P .. 'due:' .. ep, int(NOW), id)
    redis.call('ZADD', P .. 'eps', 'LT', int(NOW), ep)
    redis.call('ZADD', P .. 'dlvs:' .. ep, id, id)
    if pause ~= '' then redis.call('RPUSH', P .. 'pd:' .. run_id .. ':' .. pause, id) end
  end
  redis.call('PUBLISH', P .. 'due', ev.id)
end

-- A settled pause is not announced again: retries stop, a first attempt is still made.
local function supersede(run_id, pause)
  local key = P .. 'pd:' .. run_id .. ':' .. pause
  for _, id in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local d = P .. 'dlv:' .. id
    local v = redis.call('HMGET', d, 'state', 'tried', 'ep')
    -- A pause may outlive what is kept of its deliveries.
    if v[1] then redis.call('HSET', d, 'settled', '1') end
    if v[1] == 'pending' and v[2] == '1' then
      redis.call('HSET', d, 'state', 'superseded', 'next', '')
      redis.call('ZREM', P .. 'due:' .. v[3], id)
    end
  end
  redis.call('DEL', key)
end

local function audit(acct, what, run_id, fields)
  redis.call('XADD', P .. 'audit:' .. acct, 'MAXLEN', '~', '100000', '*', 'what', what,
    'run', run_id, unpack(fields))
end

-- All frames of one move are one entry of the run's stream.
local function frames(id)
  local entry = {}
  for _, i in ipairs(A.frames or {}) do
    entry[#entry + 1] = 'f'
    entry[#entry + 1] = blob(i)
  end
  if #entry > 0 then
    redis.call('XADD', P .. 'st:' .. id, 'MAXLEN', '~', '5000', '*', unpack(entry))
    redis.call('PUBLISH', P .. 'st:' .. id, '')
  end
end

local function end_lease(run)
  put(run, 'lease_until', '0')
  redis.call('ZREM', P .. 'leases', run.id)
end

-- What is due for a pause: a reminder, its expiry. One entry for all of its gates.
local function time_entry(run_id, pause, what) return run_id .. ':' .. pause .. ':' .. what end

-- True when the times of new gates were reckoned too long ago: the opener reckons anew, so that
-- an opening that was held up does not take the time away that people have.
local function times_stale() return given(A.times) and NOW - A.times.opened > 5000 end

local function put_times(run, pause, gates)
  for what, at in pairs({remind = A.times.remind, expire = A.times.expires}) do
    if given(at) then
      redis.call('ZADD', P .. 'timed', int(at), time_entry(run.id, pause, what))
      for _, g in ipairs(gates) do
        redis.call('HSET', P .. 'gate:' .. g.id, what == 'expire' and 'expires_at' or 'remind_at',
          int(at))
      end
    end
  end
  redis.call('PUBLISH', P .. 'timed', run.id)
end

local function drop_times(run_id, pause)
  redis.call('ZREM', P .. 'timed', time_entry(run_id, pause, 'remind'),
    time_entry(run_id, pause, 'expire'))
end

-- True when that entry of the pause is there and its time has come.
local function is_due(run_id, pause, what)
  local at = redis.call('ZSCORE', P .. 'timed', time_entry(run_id, pause, what))
  return at and tonumber(at) <= NOW
end

-- Opens gates of the current step as one new pause. gates = {{id, kind, n, suggested, approvers?,
-- schema?, out_schema?}}.
-- With A.times = {opened, remind?, expires?} they are due at those times.
local function open_gates(run, gates)
  local pause = int(add(run, 'pause_n', 1))
  for _, g in ipairs(gates) do
    -- What would run: for a call that was edited and cut off, the edited input.
    local c = redis.call('HMGET', run.calls, g.n .. '.id', g.n .. '.tool', g.n .. '.input',
      g.n .. '.run_digest', g.n .. '.run_input')
    redis.call('HSET', P .. 'gate:' .. g.id, 'run', run.id, 'acct', run.acct, 'kind', g.kind,
      'n', g.n, 'tool_use_id', c[1], 'tool', c[2], 'input', c[5] or c[3], 'digest', c[4],
      'suggested', blob(g.suggested), 'state', 'pending', 'pause', pause, 'step', run.step,
      'created', int(NOW))
    for field, i in pairs({approvers = g.approvers, schema = g.schema, out_schema = g.out_schema}) do
      if given(i) then redis.call('HSET', P .. 'gate:' .. g.id, field, blob(i)) end
    end
    redis.call('HSET', run.calls, g.n .. '.state', 'asked', g.n .. '.gate', g.id)
    redis.call('RPUSH', P .. 'gates:' .. run.id, g.id)
    redis.call('ZADD', P .. 'open:' .. run.acct, int(NOW), run.id .. ':' .. g.id)
  end
  if given(A.times) then put_times(run, pause, gates) end
  redis.call('HSET', P .. 'pauses:' .. run.id, pause, #gates)
  add(run, 'open', #gates)
  put(run, 'status', 'awaiting_approval')
  return pause
end

local function load_gate(req)
  local v = redis.call('HMGET', P .. 'gate:' .. req, 'run', 'state', 'digest', 'fp', 'n', 'pause',
    'kind')
  return {run = v[1], state = v[2], digest = v[3], fp = v[4], n = v[5], pause = v[6], kind = v[7]}
end

local function close_gate(run, req, gate)
  redis.call('ZREM', P .. 'open:' .. run.acct, run.id .. ':' .. req)
  if redis.call('HINCRBY', P .. 'pauses:' .. run.id, gate.pause, -1) == 0 then
    supersede(run.id, gate.pause)
    drop_times(run.id, gate.pause)
  end
end

-- Settles one pending gate and gives its call the consequence. s = {state, fp, by, reason,
-- answers, result, call = 'allowed'|'done', grant, input, digest, plan_ok, rules}.
local function settle(run, req, gate, s)
  local n = gate.n
  redis.call('HSET', P .. 'gate:' .. req, 'state', s.state, 'fp', s.fp, 'by', s.by,
    'resolved', int(NOW), 'reason', blob(s.reason), 'answers', blob(s.answers),
    'eff_input', blob(s.input), 'eff_digest', s.digest or '')
  local seq = int(add(run, 'seq', 1))
  if s.call == 'allowed' then
    redis.call('HSET', run.calls, n .. '.state', 'allowed', n .. '.seq', seq,
      n .. '.grant', s.grant, n .. '.run_digest', s.digest or gate.digest)
    if given(s.input) then redis.call('HSET', run.calls, n .. '.run_input', blob(s.input)) end
    if given(s.rules) then redis.call('HSET', run.calls, n .. '.rules', blob(s.rules)) end
    add(run, 'todo', 1)
  else
    redis.call('HSET', run.calls, n .. '.state', 'done', n .. '.result', blob(s.result))
    add(run, 'left', -1)
  end
  -- A call that a person denied is not asked again in this turn; nobody denied one that expired.
  if s.state == 'denied' and gate.kind == 'tool_approval' and s.by ~= 'expiry' then
    put(run, 'denied:' .. gate.digest, run.turn .. ':' .. req)
  end
  if s.plan_ok then put(run, 'plan_ok', '1') end
  add(run, 'open', -1)
  close_gate(run, req, gate)
  audit(run.acct, 'decision', run.id, {'request', req, 'state', s.state, 'by', s.by,
    'digest', s.digest or gate.digest})
end
