-- Applies one decision or a batch, all or none, by compare-and-set on each gate; needs no lease.
-- ARGV[1] {id, acct, items, event, eps, subs_v, mode_v, frames}
-- items = {{req, expected?, state, fp, by, call, grant, reason?, answers?, result?, input?, digest?,
--           plan_ok?, remember?, assents}}; remember = tool name blob
-- assents = {who, digest, seen, last}: an allow of a gate that needs several approvers, as one of
-- them, who saw so many changes of the allows; last = it settles the gate, else it is only noted.
-- Returns {'ok', resumed, hint, {outcome, gate flat}...}
--       | {'refused', 0, 0, {code, gate flat}...}  (code '' = this item alone would do)
--       | {'stale', what} | {'missing'}
-- outcome = 'applied' | 'noted' | 'replay'
-- {'stale', 'expired', pause}: its time is over, so the expiry comes first.
local run = load(A.id)
if run.acct ~= A.acct then return {'missing'} end
local out, refused, fresh, noted = {}, false, 0, 0
local gates = {}
for i, s in ipairs(A.items) do
  local gate = load_gate(s.req)
  gates[i] = gate
  local code = ''
  if gate.run ~= A.id then code = 'gate_not_found'
  elseif gate.state == 'cancelled' then code = 'gate_cancelled'
  elseif given(s.expected) and s.expected ~= gate.digest then code = 'gate_changed'
  elseif gate.state ~= 'pending' then
    if gate.fp ~= s.fp then code = 'gate_resolved_otherwise' end
  elseif terminal(run) then code = 'run_not_active'
  elseif is_due(A.id, gate.pause, 'expire') then return {'stale', 'expired', gate.pause}
  else
    if given(s.assents) then
      -- Whether it is the last was worked out from what had been noted then.
      local noted_so_far = redis.call('HGET', P .. 'gate:' .. s.req, 'oks') or '0'
      if tonumber(noted_so_far) ~= s.assents.seen then return {'stale', 'assents'} end
    end
    if given(s.assents) and not s.assents.last then noted = noted + 1 else fresh = fresh + 1 end
  end
  if code ~= '' then refused = true end
  out[i] = code
end
local function shown(i)
  if gates[i].run ~= A.id then return {} end
  return redis.call('HGETALL', P .. 'gate:' .. A.items[i].req)
end
if refused then
  for i, code in ipairs(out) do out[i] = {code, shown(i)} end
  return {'refused', 0, 0, unpack(out)}
end
if fresh > 0 and num(run, 'open') == fresh then
  if run.mode_v ~= A.mode_v then return {'stale', 'mode'} end
  if stale_version('subs', run.acct, A.subs_v) then return {'stale', 'subs'} end
end
for i, s in ipairs(A.items) do
  local outcome = gates[i].state == 'pending' and 'applied' or 'replay'
  if outcome == 'applied' and given(s.assents) then
    local key, field, digest = P .. 'gate:' .. s.req, 'ok:' .. blob(s.assents.who), s.assents.digest
    local own = redis.call('HGET', key, field)
    -- Once more is no second allow, and keeps its time.
    if not own or not string.find(own, ' ' .. digest .. ' ', 1, true) then
      redis.call('HSET', key, field, int(NOW) .. ' ' .. digest .. ' ' .. s.by)
      redis.call('HINCRBY', key, 'oks', 1)
      audit(run.acct, 'assent', A.id, {'request', s.req, 'by', s.by, 'digest', digest})
    end
    if not s.assents.last then outcome = 'noted' end
  end
  if outcome == 'applied' then settle(run, s.req, gates[i], s) end
  if given(s.remember) and outcome ~= 'noted' then
    for _, tool in ipairs(s.remember) do
      redis.call('HSETNX', run.key, 'rem:' .. blob(tool), '')
    end
    -- '2' says that the policies are stored; a repeat does not take that back.
    redis.call('HSETNX', P .. 'gate:' .. s.req, 'remember', '1')
  end
  out[i] = {outcome, shown(i)}
end
local hint = 0
if fresh > 0 then
  if num(run, 'open') == 0 then
    put(run, 'status', 'running')
    emit(A.event, A.eps, run.acct, A.id, '')
  end
  frames(A.id)
  hint = wake(run)
elseif noted > 0 then
  save(run, true)
end
return {'ok', num(run, 'open') == 0 and 1 or 0, hint, unpack(out)}
