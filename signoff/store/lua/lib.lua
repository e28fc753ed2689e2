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

local function read(key)
  local flat, map = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

local function num(run, name) return tonumber(run[name] or '0') end

local function terminal(run)
  return run.status == 'completed' or run.status == 'failed' or run.status == 'cancelled'
end

-- Work is due when a model call is next, an allowed call waits, every call has its result, or
-- a started call has none while nobody holds the run.
local function due(run)
  if terminal(run) then return false end
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
local function make_ready(id, run, resume)
  local class = resume and 'r' or 's'
  local name = class .. ':' .. run.acct
  local v = tonumber(redis.call('HGET', P .. 'vtime', class) or '0')
  local f = tonumber(redis.call('HGET', P .. 'vtime', name) or '0')
  local tag = math.max(v, f)
  local score = resume and tag or tag + START_CLASS
  if redis.call('ZADD', P .. 'ready', 'NX', int(score), id) == 1 then
    redis.call('HSET', P .. 'vtime', name, int(tag + 1))
  end
  -- Whoever was woken for the first takes all; a lost wake-up is covered by polling.
  if redis.call('ZCARD', P .. 'ready') == 1 then redis.call('PUBLISH', P .. 'wake', id) end
  return hint_needed()
end

-- After a change that needs no lease: tell the holder, or queue the run. Returns the hint flag.
local function wake(id, run)
  redis.call('HINCRBY', P .. 'run:' .. id, 'wake', 1)
  if leased(run) then
    redis.call('PUBLISH', P .. 'held', id)
    return 0
  end
  if due(run) then return make_ready(id, run, true) end
  return 0
end

local function stale_version(what, acct, expected)
  return redis.call('HGET', P .. 'ver', what .. ':' .. acct) ~= expected
     and not (expected == '0' and not redis.call('HGET', P .. 'ver', what .. ':' .. acct))
end

-- Writes one event and a due delivery for each endpoint. ev = {id, type, body}, eps = {ids}.
local function emit(ev, eps, acct, run_id, pause)
  redis.call('HSET', P .. 'ev:' .. ev.id, 'type', ev.type, 'body', blob(ev.body), 'acct', acct,
    'run', run_id, 'at', int(NOW))
  redis.call('PEXPIRE', P .. 'ev:' .. ev.id, A.event_ttl or '2592000000')
  redis.call('ZADD', P .. 'evs:' .. acct, int(NOW), ev.id)
  redis.call('ZREMRANGEBYRANK', P .. 'evs:' .. acct, 0, -100001)
  if #eps == 0 then return end
  for _, ep in ipairs(eps) do
    local n = redis.call('INCR', P .. 'dseq')
    local id = int((n - 1) * A.shards + A.shard + 1)
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
    redis.call('HSET', d, 'settled', '1')
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

local function frames(id)
  for _, i in ipairs(A.frames or {}) do
    redis.call('XADD', P .. 'st:' .. id, 'MAXLEN', '~', '5000', '*', 'f', blob(i))
  end
end

local function touch(key) redis.call('HSET', key, 'updated', int(NOW)) redis.call('HINCRBY', key, 'rev', 1) end

local function set_status(id, run, status)
  if run.status ~= status then
    run.status = status
    redis.call('HSET', P .. 'run:' .. id, 'status', status)
  end
end

-- Opens gates of the current step as one new pause. gates = {{id, kind, n, input?, ...}}.
local function open_gates(id, run, gates)
  local key, calls = P .. 'run:' .. id, P .. 'calls:' .. id
  local pause = redis.call('HINCRBY', key, 'pause_n', 1)
  for _, g in ipairs(gates) do
    -- What would run: for a call that was edited and cut off, the edited input.
    local c = redis.call('HMGET', calls, g.n .. '.id', g.n .. '.tool', g.n .. '.input',
      g.n .. '.run_digest', g.n .. '.run_input')
    redis.call('HSET', P .. 'gate:' .. g.id, 'run', id, 'acct', run.acct, 'kind', g.kind,
      'n', g.n, 'tool_use_id', c[1], 'tool', c[2], 'input', c[5] or c[3], 'digest', c[4],
      'suggested', blob(g.suggested), 'state', 'pending', 'pause', int(pause), 'step', run.step,
      'created', int(NOW))
    redis.call('HSET', calls, g.n .. '.state', 'asked', g.n .. '.gate', g.id)
    redis.call('RPUSH', P .. 'gates:' .. id, g.id)
    redis.call('ZADD', P .. 'open:' .. run.acct, int(NOW), id .. ':' .. g.id)
  end
  redis.call('HSET', P .. 'pauses:' .. id, int(pause), #gates)
  run.open = redis.call('HINCRBY', key, 'open', #gates)
  set_status(id, run, 'awaiting_approval')
  return int(pause)
end

-- Settles one pending gate and gives its call the consequence. s = {state, fp, by, reason,
-- answers, result, call = 'allowed'|'done', input, digest, edited, plan_ok, remember}.
local function settle(id, run, req, gate, s)
  local key, calls, n = P .. 'run:' .. id, P .. 'calls:' .. id, gate.n
  redis.call('HSET', P .. 'gate:' .. req, 'state', s.state, 'fp', s.fp, 'by', s.by,
    'resolved', int(NOW), 'reason', blob(s.reason), 'answers', blob(s.answers),
    'eff_input', blob(s.input), 'eff_digest', s.digest or '')
  local seq = redis.call('HINCRBY', key, 'seq', 1)
  if s.call == 'allowed' then
    redis.call('HSET', calls, n .. '.state', 'allowed', n .. '.seq', int(seq),
      n .. '.grant', s.grant, n .. '.run_digest', s.digest or gate.digest)
    if given(s.input) then redis.call('HSET', calls, n .. '.run_input', blob(s.input)) end
    run.todo = redis.call('HINCRBY', key, 'todo', 1)
  else
    redis.call('HSET', calls, n .. '.state', 'done', n .. '.result', blob(s.result))
    run.left = redis.call('HINCRBY', key, 'left', -1)
  end
  if s.plan_ok then redis.call('HSET', key, 'plan_ok', '1') end
  run.open = redis.call('HINCRBY', key, 'open', -1)
  redis.call('ZREM', P .. 'open:' .. run.acct, id .. ':' .. req)
  if redis.call('HINCRBY', P .. 'pauses:' .. id, gate.pause, -1) == 0 then
    supersede(id, gate.pause)
  end
  audit(run.acct, 'decision', id, {'request', req, 'state', s.state, 'by', s.by,
    'digest', s.digest or gate.digest})
end

local function flat(map)
  local list = {}
  for k, v in pairs(map) do list[#list + 1] = k list[#list + 1] = v end
  return list
end
