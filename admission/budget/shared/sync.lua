-- One step of one gateway's dealings with one tenant's budgets for one model.
-- KEYS[1] holds the book, ARGV[1] the call (ledger.go says what its fields are);
-- the result is the reply. Rules are 1 requests, 2 input, 3 output, 4 requests
-- at once, 5 tokens a day. The book:
--   at    ms, when v was true      day  UTC day of v[5]
--   v     1-3: level of the bucket, false where no limit; 4, 5: used
--   L     leases by gateway: n life, s last call, x ms when it runs out, d its day,
--         c charged in all, h of that, what is given back when it runs out
--   e     leases that ran out, and the requests and output they held

local q = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local dayMs = 86400000
local day = math.floor(now / dayMs)
local raw = redis.call('GET', KEYS[1])
local read, book = pcall(cjson.decode, raw)
local fresh = not (read and type(book) == 'table' and book.L) -- none, or not ours: one bad key stops no other
if fresh then book = { at = now, day = day, v = {}, L = {}, e = { 0, 0, 0 } } end

-- Levels of this instant. Time that runs backwards adds nothing; if it went
-- back by more than a lease, it is counted from there.
local since = math.max(0, now - book.at) / 1000
if now > book.at or book.at - now > q.lease then book.at = now end
local level = {}
for k = 1, 3 do
  local v = book.v[k]
  if not v then v = fresh and q.had and 0 or q.hold[k] end
  level[k] = math.min(q.hold[k], v + q.rate[k] * since)
end
level[4] = q.limit[4] - (book.v[4] or 0)
level[5] = q.limit[5] - (book.v[5] or (q.had and q.day == day and q.used or 0))
if day > book.day then
  book.day = day
  level[5] = q.limit[5]
end

-- Gives n back to rule k, or takes it; what an earlier day did not use is gone.
local function give(k, n, from)
  if k == 5 and n > 0 and from ~= day then return end
  level[k] = math.min(level[k] + n, k > 3 and q.limit[k] or q.hold[k])
end

local gateways = 1
for id, lease in pairs(book.L) do
  if id == q.id then
    -- is renewed below
  elseif lease.x < now then
    for k = 1, 5 do give(k, lease.h[k], lease.d) end
    book.e[1], book.e[2], book.e[3] = book.e[1] + 1, book.e[2] + lease.h[4], book.e[3] + lease.h[3]
    book.L[id] = nil
  else
    gateways = gateways + 1
  end
end

local lease = book.L[q.id]
if lease and (q.life < lease.n or q.life == lease.n and q.seq <= lease.s) then return '{"stale":true}' end
if lease and q.life > lease.n then -- the gateway had forgotten this account, and begins anew
  for k = 1, 5 do give(k, lease.h[k], lease.d) end
  lease = nil
end
for k = 1, 5 do
  local known = lease and lease.c[k] or q.base[k]
  if fresh and q.had and k ~= 4 then known = q.charged[k] end
  give(k, known - q.charged[k], lease and lease.d or q.day)
end

local verdicts, all = {}, true
local charged, held = q.charged, q.held
for i, a in ipairs(q.asks) do
  local ask, rule, missing = { 1, a[1], a[2], 1, a[1] + a[2] }, 0, 0
  for k = 1, 5 do
    missing = math.min(ask[k], q.hold[k]) - level[k]
    if q.limit[k] > 0 and ask[k] > 0 and missing > 1e-6 then
      rule, all = k, false
      break
    end
  end
  if rule == 0 then
    for k = 1, 5 do
      level[k] = level[k] - ask[k]
      charged[k] = charged[k] + ask[k]
    end
    held[3], held[4], held[5] = held[3] + a[2], held[4] + 1, held[5] + a[2]
  end
  verdicts[i] = { rule, math.max(0, missing) }
end

-- A slice: half a second's worth, a hundredth of the limit for all gateways,
-- and half of this one's part of what is left; for a request as they come, or none.
gateways = math.max(gateways, q.gateways)
local slice, target = { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }
local useful = all and q.want
for k = 1, 5 do
  if q.limit[k] > 0 then
    local most = math.max(0, level[k] + q.kept[k]) / (2 * gateways)
    if k ~= 4 then most = math.min(most, q.limit[k] / 100 / gateways) end
    if k <= 3 then most = math.min(most, q.rate[k] / 2) end
    target[k] = math.floor(most)
    useful = useful and target[k] >= q.typical[k]
  end
end
for k = 1, 5 do
  if not useful then target[k] = 0 end
  slice[k] = math.max(0, math.min(target[k] - q.kept[k], level[k]))
  level[k] = level[k] - slice[k]
  charged[k] = charged[k] + slice[k]
  held[k] = held[k] + slice[k]
end

local ttl = q.lease
for k = 1, 3 do
  book.v[k] = q.limit[k] > 0 and level[k]
  if q.limit[k] > 0 then ttl = math.max(ttl, (q.hold[k] - level[k]) / q.rate[k] * 1000) end
end
for k = 4, 5 do
  book.v[k] = math.max(0, q.limit[k] - level[k])
end
if q.limit[5] > 0 and book.v[5] > 0 then ttl = math.max(ttl, (day + 1) * dayMs - now) end
if q.leave then
  for k = 1, 5 do give(k, held[k], day) end
  book.L[q.id] = nil
else
  book.L[q.id] = { n = q.life, s = q.seq, x = now + q.lease, d = day, c = charged, h = held }
end
redis.call('SET', KEYS[1], cjson.encode(book), 'PX', math.ceil(math.min(ttl, 30 * dayMs)))

return cjson.encode({
  known = lease ~= nil, gateways = gateways, day = day, level = level, used = book.v[5],
  charged = charged, held = held, slice = slice, target = target,
  verdicts = #verdicts > 0 and verdicts or nil,
})
