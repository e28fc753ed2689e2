-- Takes up to A.max ready runs under a lease each and records the drainer as awake.
-- A run whose step was cut off A.suspect times is taken only when the drainer holds no other such
-- run (A.alone): what kills its process must not take the same neighbours along until they fail.
-- ARGV[1] {drainer, lease_ms, awake_ms, max, suspect, alone}
-- Returns a list of {id, run hash flat, calls hash flat}.
local taken, later, alone = {}, {}, A.alone
-- First a write that a full server refuses: a pop alone would pass, and hand out runs for which
-- nothing can be committed.
redis.call('HSET', P .. 'room', A.drainer, A.max)
local function must_wait(run)
  local cut = num(run, 'takeovers') + (run.crashed == '1' and 1 or 0)
  if cut < A.suspect then return false end
  if not alone then return true end
  alone = false
  return false
end
local function take(run, score)
  local class = 'r'
  if score >= START_CLASS then class = 's' score = score - START_CLASS end
  redis.call('HSET', P .. 'vtime', class, int(score))
  if run.acct then
    local name = class .. ':' .. run.acct
    if tonumber(redis.call('HGET', P .. 'vtime', name) or '0') <= score + 1 then
      redis.call('HDEL', P .. 'vtime', name)
    end
  end
  if run.status and not leased(run) and due(run) then
    add(run, 'fence', 1)
    if run.crashed == '1' then
      add(run, 'takeovers', 1)
      put(run, 'crashed', '0')
    end
    put(run, 'lease_until', int(NOW + A.lease_ms))
    put(run, 'owner', A.drainer)
    save(run)
    redis.call('ZADD', P .. 'leases', run.lease_until, run.id)
    taken[#taken + 1] = {run.id, redis.call('HGETALL', run.key), redis.call('HGETALL', run.calls)}
  end
end
while #taken < A.max do
  local head = redis.call('ZPOPMIN', P .. 'ready', 1)
  if #head == 0 then break end
  local run = load(head[1])
  if must_wait(run) then later[#later + 1] = head else take(run, tonumber(head[2])) end
end
for _, head in ipairs(later) do redis.call('ZADD', P .. 'ready', head[2], head[1]) end
redis.call('ZADD', P .. 'awake', int(NOW + A.awake_ms), A.drainer)
redis.call('HSET', P .. 'room', A.drainer, A.max - #taken)
return taken
