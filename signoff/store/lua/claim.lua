-- Claims due deliveries under a lease and a token, fairly over endpoints, at most A.cap in flight
-- for one endpoint; expired leases come back first. With A.busy an account gets a further slot
-- only while it has fewer than are free, so that no account ever takes the last ones.
-- ARGV[1] {limit, cap, lease_ms, token, first_ms?, busy? = {account = deliveries the caller
--          has in flight}}; first_ms: how long after the event its first attempt is made
-- Returns {next_due_ms or '', rows}; row = {id, attempt, endpoint, event, type, run, body, account}.
local LATER_MS = 100
-- An endpoint that only fails is probed, so that many dead ones do not fill an account's share.
local FAILING, PROBES = 5, 2
local function account_of(ep)
  local id = redis.call('ZRANGE', P .. 'due:' .. ep, 0, 0)[1]
  return id and redis.call('HGET', P .. 'dlv:' .. id, 'acct') or ''
end
local lost = redis.call('ZRANGEBYSCORE', P .. 'dlease', '-inf', int(NOW), 'LIMIT', 0, 100)
for _, id in ipairs(lost) do
  local d = P .. 'dlv:' .. id
  local v = redis.call('HMGET', d, 'ep', 'state', 'settled', 'tried')
  redis.call('ZREM', P .. 'dlease', id)
  if v[2] == 'leased' then
    redis.call('HINCRBY', P .. 'epin', v[1], -1)
    redis.call('RPUSH', P .. 'att:' .. id, '{"outcome":"lost","at":' .. int(NOW) .. '}')
    if v[3] == '1' and v[4] == '1' then
      redis.call('HSET', d, 'state', 'superseded', 'next', '')
    else
      redis.call('HSET', d, 'state', 'pending', 'next', int(NOW))
      redis.call('ZADD', P .. 'due:' .. v[1], int(NOW), id)
      redis.call('ZADD', P .. 'eps', 'LT', int(NOW), v[1])
    end
  end
end
-- Without those whose first attempt has to wait after the event; they come back when it is time.
local function ripe(ep, ids)
  if not given(A.first_ms) then return ids end
  local out = {}
  for _, id in ipairs(ids) do
    local v = redis.call('HMGET', P .. 'dlv:' .. id, 'n', 'created')
    local at = tonumber(v[2]) + A.first_ms
    if v[1] == '0' and at > NOW then
      redis.call('ZADD', P .. 'due:' .. ep, int(at), id)
      redis.call('HSET', P .. 'dlv:' .. id, 'next', int(at))
    else out[#out + 1] = id end
  end
  return out
end

-- Without those whose event is gone: they have failed, as nothing else may be sent in its place.
local function whole(ep, ids)
  local out = {}
  for _, id in ipairs(ids) do
    local d = P .. 'dlv:' .. id
    if redis.call('HEXISTS', P .. 'ev:' .. redis.call('HGET', d, 'ev'), 'body') == 1 then
      out[#out + 1] = id
    else
      redis.call('ZREM', P .. 'due:' .. ep, id)
      redis.call('HSET', d, 'state', 'failed', 'next', '', 'error', 'the event is not kept any more')
    end
  end
  return out
end

local rows = {}
local eps = redis.call('ZRANGEBYSCORE', P .. 'eps', '-inf', int(NOW), 'LIMIT', 0, 64)
local share = math.max(1, math.ceil(A.limit / math.max(1, #eps)))
local busy = {}
for account, n in pairs(given(A.busy) and A.busy or {}) do busy[account] = n end
for _, ep in ipairs(eps) do
  local hold = tonumber(redis.call('HGET', P .. 'ephold', ep) or '0')
  if hold > NOW then
    redis.call('ZADD', P .. 'eps', int(hold), ep)
  else
    local inflight = tonumber(redis.call('HGET', P .. 'epin', ep) or '0')
    local fails = tonumber(redis.call('HGET', P .. 'epf:' .. ep, 'fails') or '0')
    local cap = fails < FAILING and A.cap or math.min(A.cap, PROBES)
    local room = math.min(cap - inflight, share, A.limit - #rows)
    local account, waits = account_of(ep), false
    if given(A.busy) and room > 0 then
      room = math.min(room, math.ceil((A.limit - #rows - (busy[account] or 0)) / 2))
      waits = room <= 0
    end
    local ids = {}
    if room > 0 then
      ids = redis.call('ZRANGEBYSCORE', P .. 'due:' .. ep, '-inf', int(NOW), 'LIMIT', 0, room)
    end
    ids = whole(ep, ripe(ep, ids))
    for _, id in ipairs(ids) do
      local d = P .. 'dlv:' .. id
      local n = redis.call('HINCRBY', d, 'n', 1)
      redis.call('HSET', d, 'state', 'leased', 'token', A.token)
      redis.call('ZREM', P .. 'due:' .. ep, id)
      redis.call('ZADD', P .. 'dlease', int(NOW + A.lease_ms), id)
      local v = redis.call('HMGET', d, 'ev', 'type', 'run')
      local body = redis.call('HGET', P .. 'ev:' .. v[1], 'body')
      rows[#rows + 1] = {id, n, ep, v[1], v[2], v[3], body, account}
    end
    if #ids > 0 then redis.call('HINCRBY', P .. 'epin', ep, #ids) end
    busy[account] = (busy[account] or 0) + #ids
    local first = redis.call('ZRANGE', P .. 'due:' .. ep, 0, 0, 'WITHSCORES')
    if #first == 0 or inflight + #ids >= cap then
      redis.call('ZREM', P .. 'eps', ep)
    else
      -- Behind those that wait: a backlog must not hide the others.
      local again = math.max(tonumber(first[2]), waits and NOW + LATER_MS or NOW)
      redis.call('ZADD', P .. 'eps', int(again), ep)
    end
  end
end
local next = redis.call('ZRANGE', P .. 'eps', 0, 0, 'WITHSCORES')
local lease = redis.call('ZRANGE', P .. 'dlease', 0, 0, 'WITHSCORES')
local at = next[2]
if lease[2] and (not at or tonumber(lease[2]) < tonumber(at)) then at = lease[2] end
return {at and int(tonumber(at) - NOW) or '', rows}
