-- Claims due deliveries under a lease and a token, fairly over endpoints, at most A.cap in flight
-- for one endpoint; expired leases come back first.
-- ARGV[1] {limit, cap, lease_ms, token}
-- Returns {next_due_ms or '', rows}; row = {id, attempt, endpoint, event, type, run, body, settled}.
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
local rows = {}
local eps = redis.call('ZRANGEBYSCORE', P .. 'eps', '-inf', int(NOW), 'LIMIT', 0, 64)
local share = math.max(1, math.ceil(A.limit / math.max(1, #eps)))
for _, ep in ipairs(eps) do
  local hold = tonumber(redis.call('HGET', P .. 'ephold', ep) or '0')
  if hold > NOW then
    redis.call('ZADD', P .. 'eps', int(hold), ep)
  else
    local inflight = tonumber(redis.call('HGET', P .. 'epin', ep) or '0')
    local room = math.min(A.cap - inflight, share, A.limit - #rows)
    local ids = {}
    if room > 0 then
      ids = redis.call('ZRANGEBYSCORE', P .. 'due:' .. ep, '-inf', int(NOW), 'LIMIT', 0, room)
    end
    for _, id in ipairs(ids) do
      local d = P .. 'dlv:' .. id
      local n = redis.call('HINCRBY', d, 'n', 1)
      redis.call('HSET', d, 'state', 'leased', 'token', A.token)
      redis.call('ZREM', P .. 'due:' .. ep, id)
      redis.call('ZADD', P .. 'dlease', int(NOW + A.lease_ms), id)
      local v = redis.call('HMGET', d, 'ev', 'type', 'run')
      local body = redis.call('HGET', P .. 'ev:' .. v[1], 'body')
      rows[#rows + 1] = {id, n, ep, v[1], v[2], v[3], body or ''}
    end
    if #ids > 0 then redis.call('HINCRBY', P .. 'epin', ep, #ids) end
    local first = redis.call('ZRANGE', P .. 'due:' .. ep, 0, 0, 'WITHSCORES')
    if #first == 0 or inflight + #ids >= A.cap then
      redis.call('ZREM', P .. 'eps', ep)
    else
      redis.call('ZADD', P .. 'eps', first[2], ep)
    end
  end
end
local next = redis.call('ZRANGE', P .. 'eps', 0, 0, 'WITHSCORES')
local lease = redis.call('ZRANGE', P .. 'dlease', 0, 0, 'WITHSCORES')
local at = next[2]
if lease[2] and (not at or tonumber(lease[2]) < tonumber(at)) then at = lease[2] end
return {at and int(tonumber(at) - NOW) or '', rows}
